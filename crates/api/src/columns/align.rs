//! Cells below one another: columns as wide as they have to be, three spaces between them.

const BETWEEN: &str = "   ";
const BLANK: &str = "                                                                ";

/// Lines of cells as text, each line with an end. They are gone through twice. `widths` are those of the columns so far; they
/// grow and never shrink. Lines are cut at `width` characters when there is one: a terminal's.
pub fn align<'a, L>(lines: impl Iterator<Item = L> + Clone, widths: &mut Vec<usize>, width: Option<usize>) -> String
where
    L: Iterator<Item = &'a str>,
{
    let mut count = 0;
    for line in lines.clone() {
        for (at, cell) in line.enumerate() {
            if at == widths.len() {
                widths.push(0);
            }
            widths[at] = length(cell).max(widths[at]);
        }
        count += 1;
    }
    let longest: usize = widths.iter().map(|width| width + BETWEEN.len()).sum();
    let mut out = String::with_capacity(count * longest);
    for line in lines {
        let begin = out.len();
        for (at, (cell, width)) in line.zip(&*widths).enumerate() {
            out.push_str(if at == 0 { "" } else { BETWEEN });
            out.push_str(cell);
            let mut left = width - length(cell);
            while left > 0 {
                let some = left.min(BLANK.len());
                out.push_str(&BLANK[..some]);
                left -= some;
            }
        }
        let end = out.trim_end().len().max(begin);
        out.truncate(end);
        if let Some(width) = width {
            let line = cut(&out[begin..], width.max(1));
            out.replace_range(begin.., &line);
        }
        out.push('\n');
    }
    out
}

/// How many characters a cell has. Nearly all are ASCII, which is seen sooner than counted.
fn length(cell: &str) -> usize {
    if cell.is_ascii() { cell.len() } else { cell.chars().count() }
}

/// At most `most` characters, the last of them `…` when there were more.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_and_grow() {
        let lines = [["NAME", "AGE", "X"], ["é", "5s", ""], ["longer", "<none>", "y"]];
        let lines = lines.iter().map(|line| line.iter().copied());
        assert_eq!(align(lines.clone(), &mut Vec::new(), None), "NAME     AGE      X\né        5s\nlonger   <none>   y\n");
        assert_eq!(align(lines, &mut Vec::new(), Some(8)), "NAME   …\né      …\nlonger …\n");
        let (mut widths, lines) = (vec![2, 8], [["a", "b"], ["abc", ""]]);
        assert_eq!(align(lines.iter().map(|line| line.iter().copied()), &mut widths, None), "a     b\nabc\n");
        assert_eq!(widths, [3, 8]);
        let wide = "w".repeat(100);
        let lines = [[wide.as_str(), "x"], ["n", "y"]];
        let text = align(lines.iter().map(|line| line.iter().copied()), &mut Vec::new(), None);
        assert_eq!(text.lines().map(str::len).collect::<Vec<_>>(), [104, 104]);
    }
}
