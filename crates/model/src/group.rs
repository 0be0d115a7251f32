//! Groups and distinct items, in the order in which they first occur.

/// Groups items by key. Keys, and the items of each, are in the order in which they first occur.
pub fn grouped<T, K: PartialEq>(
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let key = key(&item);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}

/// Returns each item once, in the order in which they first occur.
pub fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_group_decides_its_place() {
        let groups = grouped(["bb", "a", "cc", "d"], |word| word.len());
        assert_eq!(groups, [(2, vec!["bb", "cc"]), (1, vec!["a", "d"])]);
        assert_eq!(distinct([3, 1, 3, 2, 1]), [3, 1, 2]);
    }
}
