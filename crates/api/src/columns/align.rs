//! Cells below one another: columns as wide as they have to be, three spaces between them.

use std::borrow::Cow;

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
            widths[at] = cell.chars().count().max(widths[at]);
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
            let mut left = width - cell.chars().count();
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

/// Lines whose cells have tabs between them. Nothing is generic here, so that it is made for many lines wherever it is used.
pub fn align_tabbed(lines: &[Cow<'_, str>], width: Option<usize>) -> String {
    align(lines.iter().map(|line| line.split('\t')), &mut Vec::new(), width)
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
        let lines = ["NAME\tAGE\tX", "é\t5s\t", "longer\t<none>\ty"].map(Cow::from);
        assert_eq!(align_tabbed(&lines, None), "NAME     AGE      X\né        5s\nlonger   <none>   y\n");
        assert_eq!(align_tabbed(&lines, Some(8)), "NAME   …\né      …\nlonger …\n");
        let (mut widths, lines) = (vec![2, 8], [["a", "b"], ["abc", ""]]);
        assert_eq!(align(lines.iter().map(|line| line.iter().copied()), &mut widths, None), "a     b\nabc\n");
        assert_eq!(widths, [3, 8]);
        let wide = format!("{}\tx", "w".repeat(100));
        assert_eq!(align_tabbed(&[wide.into(), "n\ty".into()], None).lines().map(str::len).collect::<Vec<_>>(), [104, 104]);
    }
}
