//! Texts cut to a length.

/// How much of what a tool is used on is told, in characters.
const LONGEST_LINE: usize = 200;

/// At most `most` bytes of a text, cut between characters, and said when it was.
pub fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    format!("{}…", &text[..end])
}

/// The first line that is not empty, with a sign when there is more.
pub fn first_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let more = lines.next().is_some() || first.chars().count() > LONGEST_LINE;
    let first: String = first.chars().take(LONGEST_LINE).collect();
    if more { format!("{first} …") } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("äää", 3), "ä…");
        assert_eq!(cut("äää", 6), "äää");
    }

    #[test]
    fn a_first_line_says_that_there_is_more() {
        assert_eq!(first_line("\nls -la  \n"), "ls -la");
        assert_eq!(first_line("cat <<EOT\nx\nEOT"), "cat <<EOT …");
        assert_eq!(first_line(&"x".repeat(300)).chars().count(), 202);
        assert_eq!(first_line(""), "");
    }
}
