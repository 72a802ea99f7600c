//! The last look at every text: values that were left out elsewhere, and what looks like a key, whoever wrote it.

/// What stands in place of what was taken out.
pub(super) const OUT: &str = "<redacted>";

/// Shorter values are words of their own elsewhere too.
const SHORTEST: usize = 6;

/// How long a word of letters and digits is that may be a secret, and one of letters alone.
const MIXED: usize = 8;
const LONG: usize = 20;

/// What keys of well-known services begin with.
const BEGINNINGS: [&str; 16] = [
    "sk-",
    "sk_",
    "pk_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "ASIA",
    "AIza",
    "hf_",
    "eyJ",
];

/// What the name of a secret ends with.
const NAMES: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "access_key",
    "private_key",
    "credential",
    "authorization",
];

/// Values that must not be in any text.
#[derive(Debug, Default, Clone)]
pub struct Scrub(Vec<String>);

impl Scrub {
    /// Takes note of a text: the whole, each line of it, and of its words those that may be secrets by themselves. The others
    /// are everybody's words, in every log.
    pub fn note(&mut self, text: &str) {
        self.take(text);
        text.lines().for_each(|line| self.take(line));
        let mut before = "";
        for word in text.split(|c: char| c.is_whitespace() || "\"',;".contains(c)).filter(|word| !word.is_empty()) {
            let is_named = before.strip_suffix(':').is_some_and(is_secret);
            let value = word.split_once('=').map(|(_, value)| value);
            if let Some(value) = value {
                self.take(value);
            }
            for part in word.split('=').chain([word]).filter(|part| is_named || looks_secret(part)) {
                self.take(part);
            }
            before = word;
        }
    }

    fn take(&mut self, value: &str) {
        let value = value.trim();
        if value.len() >= SHORTEST && !self.0.iter().any(|known| known == value) {
            self.0.push(value.to_owned());
        }
    }

    /// The text without them.
    pub fn text(&self, text: &str) -> String {
        let mut values: Vec<&String> = self.0.iter().collect();
        // what holds another goes first
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        let mut out = text.to_owned();
        for value in values {
            if out.contains(value.as_str()) {
                out = out.replace(value.as_str(), OUT);
            }
        }
        let mut lines = String::with_capacity(out.len());
        let mut in_key = false;
        for line in out.split_inclusive('\n') {
            if line.contains("-----BEGIN ") && line.contains("PRIVATE KEY") {
                in_key = true;
                lines.push_str(OUT);
                lines.push('\n');
            }
            if !in_key {
                lines.push_str(&self::line(line));
            }
            if line.contains("-----END ") {
                in_key = false;
            }
        }
        lines
    }
}

/// Whether a word is none that anybody says: a long one of letters and digits, or of letters both large and small.
fn looks_secret(word: &str) -> bool {
    let has = |is: fn(&char) -> bool| word.chars().any(|c| is(&c));
    let (letters, digits) = (has(|c| c.is_alphabetic()), has(char::is_ascii_digit));
    let mixed = has(|c| c.is_uppercase()) && has(|c| c.is_lowercase());
    (word.len() >= MIXED && letters && digits) || (word.len() >= LONG && mixed)
}

const fn is_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '+' | '=' | '~')
}

/// One line without what looks like a key.
fn line(line: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(line.len()), line);
    while let Some(first) = rest.chars().next() {
        let word_end = rest.find(|c: char| !is_key(c)).unwrap_or(rest.len());
        if word_end == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            // ://user:password@host
            if first == ':'
                && let Some(address) = rest.strip_prefix("//")
            {
                out.push_str("//");
                rest = without_userinfo(address, &mut out);
            }
            continue;
        }
        let (word, after) = rest.split_at(word_end);
        // NAME=VALUE is one word of key characters, NAME: "VALUE" is not
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        if is_secret(name) {
            if let Some(value) = value {
                out.push_str(name);
                out.push('=');
                out.push_str(if value.is_empty() { "" } else { OUT });
                rest = after;
                if value.is_empty() {
                    rest = quoted(rest, &mut out);
                }
                continue;
            }
            let gap = after.find(|c: char| !matches!(c, ' ' | '"' | '\'' | ':' | '\\')).unwrap_or(after.len());
            if after[..gap].contains(':') {
                let (between, behind) = after.split_at(gap);
                let end = behind.find(|c: char| "\"',}\\\n".contains(c)).unwrap_or(behind.len());
                out.push_str(word);
                out.push_str(between);
                out.push_str(if end == 0 { "" } else { OUT });
                rest = &behind[end..];
                continue;
            }
        }
        let tail = value.unwrap_or(word);
        let looks = |text: &str| text.len() >= 16 && BEGINNINGS.iter().any(|beginning| text.starts_with(beginning));
        if looks(word) {
            out.push_str(OUT);
        } else if looks(tail) {
            out.push_str(name);
            out.push('=');
            out.push_str(OUT);
        } else {
            out.push_str(word);
            if matches!(word, "Bearer" | "Basic") && after.starts_with(' ') {
                let behind = &after[1..];
                let end = behind.find(|c: char| !is_key(c)).unwrap_or(behind.len());
                out.push(' ');
                out.push_str(if end == 0 { "" } else { OUT });
                rest = &behind[end..];
                continue;
            }
        }
        rest = after;
    }
    out
}

fn is_secret(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    NAMES.iter().any(|secret| name.ends_with(secret))
}

/// A quoted value behind `NAME=`.
fn quoted<'a>(rest: &'a str, out: &mut String) -> &'a str {
    let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) else { return rest };
    let inside = &rest[1..];
    let end = inside.find(quote).unwrap_or(inside.len());
    out.push(quote);
    out.push_str(OUT);
    &inside[end..]
}

/// Leaves out the password before an `@` of an address.
fn without_userinfo<'a>(rest: &'a str, out: &mut String) -> &'a str {
    let end = rest.find(|c: char| c.is_whitespace() || "/\"'".contains(c)).unwrap_or(rest.len());
    match rest[..end].rfind('@').and_then(|at| Some((rest[..at].find(':')?, at))) {
        Some((colon, at)) => {
            out.push_str(&rest[..=colon]);
            out.push_str(OUT);
            &rest[at..]
        }
        None => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_text_that_is_left_out_stay_where_others_say_them() {
        let mut scrub = Scrub::default();
        scrub.note("Put the coder into a container.\nThen say: password: secretly, S3cr3tW0rd or KEY=plainly");
        for (text, left) in [
            ("the container of coder is restarted\n", "the container of coder is restarted\n"),
            ("asked: Put the coder into a container.\n", "asked: <redacted>\n"),
            ("it said secretly\n", "it said <redacted>\n"),
            ("it said S3cr3tW0rd\n", "it said <redacted>\n"),
            ("it said plainly\n", "it said <redacted>\n"),
        ] {
            assert_eq!(scrub.text(text), left);
        }
    }

    #[test]
    fn known_values_and_what_looks_like_a_key_go_and_the_rest_stays() {
        let mut scrub = Scrub::default();
        scrub.note("TOKEN=hunter2000");
        scrub.note("abc");
        for (text, left) in [
            ("it said hunter2000, twice: hunter2000\n", "it said <redacted>, twice: <redacted>\n"),
            ("abc stays\n", "abc stays\n"),
            ("key sk-0123456789abcdefghij here", "key <redacted> here"),
            ("KEY=ghp_0123456789abcdefghij", "KEY=<redacted>"),
            ("curl -H 'Authorization: Bearer abc.def'", "curl -H 'Authorization: <redacted>'"),
            ("Bearer abcdef next", "Bearer <redacted> next"),
            ("--password=x y", "--password=<redacted> y"),
            ("DB_PASSWORD=\"a b\" c", "DB_PASSWORD=\"<redacted>\" c"),
            ("{\"apiToken\": \"zz\", \"n\": 1}", "{\"apiToken\": \"<redacted>\", \"n\": 1}"),
            ("token: plain\n", "token: <redacted>\n"),
            ("{\"message\": \"got {\\\"token\\\":\\\"zz\\\"}\"}", "{\"message\": \"got {\\\"token\\\":\\\"<redacted>\\\"}\"}"),
            ("https://me:pass@host/x", "https://me:<redacted>@host/x"),
            ("ssh://me@host:22", "ssh://me@host:22"),
            ("a\n-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\nb\n", "a\n<redacted>\nb\n"),
            ("hmz_tokens_total{kind=\"input\"} 7\n", "hmz_tokens_total{kind=\"input\"} 7\n"),
            (
                "container 4bf92f3577b34da6a3ce929d0e0e47364bf92f3577b34da6a3ce929d0e0e4736",
                "container 4bf92f3577b34da6a3ce929d0e0e47364bf92f3577b34da6a3ce929d0e0e4736",
            ),
            ("unix:///var/run/docker.sock — größer\n", "unix:///var/run/docker.sock — größer\n"),
        ] {
            assert_eq!(scrub.text(text), left);
        }
    }
}
