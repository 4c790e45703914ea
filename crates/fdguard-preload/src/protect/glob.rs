//! File name patterns: `*` matches anything, `?` one byte.

/// Whether a whole name matches the pattern. Takes at most time proportional to the product of both
/// lengths.
pub(super) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    // Where the last star was, and how much of the name it has matched.
    let mut star: Option<(usize, usize)> = None;
    loop {
        match (pattern.get(at), name.get(in_name)) {
            (None, None) => return true,
            (Some(b'*'), _) => {
                star = Some((at, in_name));
                at += 1;
                continue;
            }
            (Some(b'?'), Some(_)) => {}
            (Some(wanted), Some(found)) if wanted == found => {}
            _ => {
                let Some((before, taken)) = star.filter(|(_, taken)| *taken < name.len()) else {
                    return false;
                };
                star = Some((before, taken + 1));
                at = before + 1;
                in_name = taken + 1;
                continue;
            }
        }
        at += 1;
        in_name += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_and_marks_stand_for_what_they_should() {
        let is = |pattern: &str, name: &str| matches(pattern.as_bytes(), name.as_bytes());
        assert!(is("*.ledger", "books.ledger"));
        assert!(is("/srv/*/j?urnal*", "/srv/a/b/journal-1"));
        assert!(is("*a*b", "xaaab"));
        assert!(is("*", ""));
        assert!(!is("*.ledger", "books.ledger2"));
        assert!(!is("", "a") && is("", ""));
        assert!(!is("a?", "a"));
    }
}
