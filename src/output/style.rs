//! Colours: only where a terminal takes them, and never the only carrier of meaning.

/// How a piece of text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// As it is.
    Plain,
    /// Of less weight.
    Dim,
    /// Of less weight, slanted.
    DimItalic,
    /// An agent at work.
    Green,
    /// We speak.
    Yellow,
    /// Somebody else at work.
    Cyan,
    /// A failure.
    Red,
}

/// Whether a stream takes colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// It does.
    pub colour: bool,
}

impl Style {
    /// No colours.
    #[cfg(test)]
    pub const PLAIN: Self = Self { colour: false };

    /// Decides for a stream: NO_COLOR (not empty) is never, then TERM=dumb is never, then FORCE_COLOR (not empty, not 0) is
    /// always, else a terminal has them.
    pub fn decide(variable: impl Fn(&str) -> Option<String>, is_terminal: bool) -> Self {
        let set = |name: &str| variable(name).filter(|v| !v.is_empty());
        let colour = if set("NO_COLOR").is_some() || set("TERM").is_some_and(|t| t == "dumb") {
            false
        } else if set("FORCE_COLOR").is_some_and(|v| v != "0") {
            true
        } else {
            is_terminal
        };
        Self { colour }
    }

    /// The text in that look. The characters are the same without colours.
    pub fn paint(self, look: Look, text: &str) -> String {
        let code = match look {
            Look::Plain => return text.to_owned(),
            Look::Dim => "2",
            Look::DimItalic => "2;3",
            Look::Green => "32",
            Look::Yellow => "33",
            Look::Cyan => "36",
            Look::Red => "31",
        };
        if self.colour && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_decides() {
        let decide = |variables: &[(&str, &str)], terminal| {
            Style::decide(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()), terminal).colour
        };
        assert!(decide(&[], true));
        assert!(!decide(&[], false));
        assert!(!decide(&[("NO_COLOR", "1"), ("FORCE_COLOR", "1")], true));
        assert!(decide(&[("NO_COLOR", "")], true));
        assert!(!decide(&[("TERM", "dumb"), ("FORCE_COLOR", "1")], true));
        assert!(decide(&[("FORCE_COLOR", "1")], false));
        assert!(!decide(&[("FORCE_COLOR", "0")], false));
        assert!(!decide(&[("FORCE_COLOR", "")], false));
        assert_eq!(Style { colour: true }.paint(Look::Red, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(Style::PLAIN.paint(Look::Red, "x"), "x");
    }
}
