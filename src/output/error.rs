//! An error as a person reads it.

use super::clean::clean;
use hmz_api::Error;

/// `hmz VERB: error: MESSAGE`, then a line for each hint; ends with a newline. An empty verb is `hmz: error: …`.
pub fn render(verb: &str, error: &Error) -> String {
    let space = if verb.is_empty() { "" } else { " " };
    let mut out = format!("hmz{space}{verb}: error: {}\n", clean(error.message.trim_end()));
    for hint in &error.hints {
        let hint = clean(hint.trim_end()).replace('\n', "\n        ");
        out.push_str(&format!("  hint: {hint}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_the_message_and_the_hints() {
        let error = Error::refused("docker@gpubox has 4 of 4 CPUs free, and 'box' asks for 8");
        insta::assert_snapshot!(render("exec", &error), @"hmz exec: error: docker@gpubox has 4 of 4 CPUs free, and 'box' asks for 8");
        let error = Error::usage("no\x1b[2J").hint("save it:\nhmz apply -f x.yaml").hint("or not");
        assert_eq!(render("", &error), "hmz: error: no␛[2J\n  hint: save it:\n        hmz apply -f x.yaml\n  hint: or not\n");
    }
}
