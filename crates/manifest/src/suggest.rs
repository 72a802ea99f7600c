//! What was probably meant by a word that is not one of the known ones.

/// The known word nearest to `word`, when it is near enough to be a slip of the hand.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase().replace('-', "_");
    known
        .into_iter()
        .map(|k| (distance(&lower, &k.to_lowercase().replace('-', "_")), k))
        .filter(|(d, k)| *d <= (k.chars().count().max(lower.chars().count()) / 3).max(1) && *d < k.chars().count())
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

/// `did you mean 'x'?`, or what there is to choose from.
pub(crate) fn suggestion(word: &str, known: &[&str]) -> Option<String> {
    if let Some(near) = nearest(word, known.iter().copied()) {
        return Some(format!("did you mean '{near}'?"));
    }
    match known {
        [] => None,
        [one] => Some(format!("expected '{one}'")),
        [all @ .., last] => Some(format!("expected one of {} and {last}", all.join(", "))),
    }
}

/// Edits between two words, a swap of neighbours counted as one. Long words are not compared: a manifest is hostile input.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_found_and_a_stranger_is_not() {
        let known = ["runtime", "workdir", "image", "cpus", "memory"];
        for (word, near) in [
            ("runtme", Some("runtime")),
            ("Runtime", Some("runtime")),
            ("wrokdir", Some("workdir")),
            ("work-dir", Some("workdir")),
            ("cpu", Some("cpus")),
            ("volumes", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), near, "{word}");
        }
        assert_eq!(suggestion("zzz", &["a"]).as_deref(), Some("expected 'a'"));
        assert_eq!(suggestion("zzz", &["a", "b", "c"]).as_deref(), Some("expected one of a, b and c"));
    }
}
