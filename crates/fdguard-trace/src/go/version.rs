//! The version of Go that built a program, from the header that the linker adds.

use super::image::ProgramImage;

/// The start of the header, as a word.
const MAGIC: u64 = u64::from_le_bytes(*b"\xff Go bui");
const REST: &[u8] = b"ldinf:";
/// No version is longer.
const LONGEST: usize = 256;

/// A version of Go: `1.24` is `(1, 24)`. Its layouts do not change in a patch.
pub(super) type GoVersion = (u32, u32);

/// Reads it from the build header. Before 1.18 the header points at the text.
pub(super) fn read(image: &ProgramImage) -> Option<GoVersion> {
    let named = image.section(".go.buildinfo").into_iter();
    let headers = named.chain(image.words(|word| word == MAGIC));
    headers
        .into_iter()
        .find_map(|header| parse(&text(image, header)?))
}

fn text(image: &ProgramImage, header: u64) -> Option<String> {
    const INLINE: u8 = 2;
    let start = image.bytes(header, 32)?;
    let rest = start.strip_prefix(&MAGIC.to_le_bytes())?;
    let [_pointer_size, flags] = *rest.strip_prefix(REST)?.first_chunk::<2>()?;
    let bytes = if flags & INLINE != 0 {
        let after = header.checked_add(32)?;
        let length = usize::from(*image.bytes(after, 1)?.first()?);
        image.bytes(after.checked_add(1)?, length.min(0x7f))?
    } else {
        let string = image.pointer(header.checked_add(16)?)?;
        let length = image.pointer(string.checked_add(8)?)?;
        let length = usize::try_from(length).ok()?.min(LONGEST);
        image.bytes(image.pointer(string)?, length)?
    };
    String::from_utf8(bytes).ok()
}

/// `go1.24.11`, `go1.27rc1 X:boringcrypto`, `devel go1.28-abc`.
fn parse(text: &str) -> Option<GoVersion> {
    let (_, number) = text.split_once("go")?;
    let mut parts = number.split(|c: char| !c.is_ascii_digit());
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?.parse().ok()?;
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_version_is_read_from_its_usual_forms() {
        assert_eq!(parse("go1.24.11"), Some((1, 24)));
        assert_eq!(parse("go1.21"), Some((1, 21)));
        assert_eq!(parse("go1.27rc1 X:boringcrypto"), Some((1, 27)));
        assert_eq!(parse("devel go1.28-abc123"), Some((1, 28)));
        assert_eq!(parse("unknown"), None);
        assert_eq!(parse(""), None);
    }
}
