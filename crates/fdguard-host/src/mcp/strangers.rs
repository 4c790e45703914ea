//! Client lines that cannot be messages. The protocol library ignores them silently, as it should;
//! the host logs them as events. Pure.

/// Maximum number of reports per client: a client that writes its log here would fill the host's.
const MOST: u32 = 10;

/// Finds the start of lines, however the bytes arrive.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    is_inside: bool,
    told: u32,
}

impl Strangers {
    /// The starts of lines that cannot be messages: a message is an object or a list of objects.
    pub(super) fn seen<'b>(&mut self, bytes: &'b [u8]) -> Vec<&'b [u8]> {
        let mut found = Vec::new();
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            let end = rest.iter().position(|byte| *byte == b'\n');
            let line = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
            let is_blank = first.is_ascii_whitespace();
            if !self.is_inside && !is_blank && !b"{[".contains(first) && self.told < MOST {
                self.told += 1;
                found.push(line);
            }
            // Leading blanks are not the start of a line.
            let is_begun = self.is_inside || !line.iter().all(u8::is_ascii_whitespace);
            self.is_inside = end.is_none() && is_begun;
            rest = end.and_then(|end| rest.get(end + 1..)).unwrap_or_default();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pieces: &[&str]) -> Vec<String> {
        let mut strangers = Strangers::default();
        let lines = pieces.iter().flat_map(|piece| {
            let lines = strangers.seen(piece.as_bytes());
            lines
                .into_iter()
                .map(|line| String::from_utf8_lossy(line).into_owned())
                .collect::<Vec<_>>()
        });
        lines.collect()
    }

    #[test]
    fn messages_and_empty_lines_are_none() {
        assert!(seen(&["{}\n\n[{}]\n \n{\"a\":", "\"b\"", "}\n"]).is_empty());
    }

    #[test]
    fn a_line_is_told_once_however_it_comes() {
        assert_eq!(
            seen(&["hello?\n{}\nwor", "ld {}\n", "{}\nx"]),
            ["hello?", "wor", "x"]
        );
    }

    #[test]
    fn a_client_that_writes_its_log_here_does_not_fill_ours() {
        assert_eq!(seen(&[&"x\n".repeat(1000)]).len(), 10);
    }
}
