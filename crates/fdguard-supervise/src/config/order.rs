//! The start order of services.

use fdguard_core::located::{ConfigMistake, ValueSource};

/// One service, as far as its order matters.
#[derive(Clone, Debug)]
pub(super) struct Item<'s> {
    /// Its name.
    pub(super) name: &'s str,
    /// Those it depends on.
    pub(super) after: &'s [String],
    /// Where it is set.
    pub(super) source: ValueSource,
}

/// The services' indexes, each after those it depends on; otherwise in the given order.
pub(super) fn order(items: &[Item<'_>]) -> Result<Vec<usize>, ConfigMistake> {
    let number = |name: &str| items.iter().position(|item| item.name == name);
    for item in items {
        for name in item.after {
            if number(name).is_none() {
                let message = format!("unknown service `{name}`");
                return Err(ConfigMistake::new(item.source, "after", message));
            }
        }
    }
    let mut sorted: Vec<usize> = Vec::new();
    while sorted.len() < items.len() {
        let is_free = |at: &usize| {
            let mut waits_for = items[*at].after.iter().filter_map(|name| number(name));
            !sorted.contains(at) && waits_for.all(|other| sorted.contains(&other))
        };
        let Some(next) = (0..items.len()).find(is_free) else {
            return Err(cycle(items, &sorted));
        };
        sorted.push(next);
    }
    Ok(sorted)
}

/// Follows the first one that cannot be placed until a name repeats.
fn cycle(items: &[Item<'_>], sorted: &[usize]) -> ConfigMistake {
    let number = |name: &str| items.iter().position(|item| item.name == name);
    let stuck = |at: &usize| !sorted.contains(at);
    let mut path: Vec<usize> = Vec::new();
    let mut at = (0..items.len()).find(stuck);
    while let Some(here) = at {
        if let Some(begin) = path.iter().position(|one| *one == here) {
            path.drain(..begin);
            break;
        }
        path.push(here);
        let mut next = items[here].after.iter().filter_map(|name| number(name));
        at = next.find(stuck);
    }
    let first = path.first().copied().unwrap_or_default();
    path.push(first);
    let names: Vec<&str> = path.iter().map(|at| items[*at].name).collect();
    let message = format!("dependency cycle: {}", names.join(" after "));
    ConfigMistake::new(items[first].source, "after", message)
}

#[cfg(test)]
mod tests {
    use fdguard_core::located::{FilePosition, ValueSource};

    use super::{Item, order};

    fn ordered(list: &[(&str, &[&str])]) -> Result<Vec<usize>, String> {
        let after: Vec<Vec<String>> = list
            .iter()
            .map(|(_, after)| after.iter().map(|one| (*one).to_owned()).collect())
            .collect();
        let items: Vec<Item<'_>> = list
            .iter()
            .zip(&after)
            .enumerate()
            .map(|(line, ((name, _), after))| Item {
                name,
                after,
                source: ValueSource::File(FilePosition { line, column: 1 }),
            })
            .collect();
        order(&items).map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn each_comes_after_those_it_waits_for() {
        let list: [(&str, &[&str]); 4] = [
            ("web", &["db", "cache"]),
            ("db", &[]),
            ("cache", &["db"]),
            ("other", &[]),
        ];
        assert_eq!(ordered(&list), Ok(vec![1, 2, 0, 3]));
    }

    #[test]
    fn a_circle_and_a_stranger_are_told() {
        let list: [(&str, &[&str]); 4] =
            [("x", &["a"]), ("a", &["b"]), ("b", &["c"]), ("c", &["a"])];
        assert_eq!(
            ordered(&list).unwrap_err(),
            "line 1, column 1: after: dependency cycle: a after b after c after a"
        );
        assert!(
            ordered(&[("a", &["a"])])
                .unwrap_err()
                .ends_with("a after a")
        );
        assert!(
            ordered(&[("a", &["z"])])
                .unwrap_err()
                .ends_with("unknown service `z`")
        );
    }
}
