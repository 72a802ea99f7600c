//! A trace, and where in it a process is: the `traceparent` of the W3C.

use std::fmt;
use uuid::Uuid;

/// One span of a trace, and the one it is below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    trace: String,
    span: String,
    parent: Option<String>,
}

impl TraceContext {
    /// The beginning of a trace.
    pub fn begin() -> Self {
        Self { trace: Uuid::new_v4().simple().to_string(), span: span_id(), parent: None }
    }

    /// A span below the one that a `traceparent` names; the beginning of a trace where it names none.
    pub fn below(traceparent: Option<&str>) -> Self {
        match traceparent.and_then(read) {
            Some((trace, parent)) => Self { trace: trace.to_owned(), span: span_id(), parent: Some(parent.to_owned()) },
            None => Self::begin(),
        }
    }

    /// The span of that number below this one: who knows the number can say what is below it before it is told.
    #[must_use]
    pub fn at_span(&self, number: u64) -> Self {
        // all zeroes is no id
        Self { trace: self.trace.clone(), span: format!("{:016x}", number.max(1)), parent: Some(self.span.clone()) }
    }

    /// A span below this one.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { trace: self.trace.clone(), span: span_id(), parent: Some(self.span.clone()) }
    }

    /// Where a `traceparent` itself is; `None` where it names nothing.
    pub fn read(traceparent: &str) -> Option<Self> {
        read(traceparent).map(|(trace, span)| Self { trace: trace.to_owned(), span: span.to_owned(), parent: None })
    }

    /// As [`Self::below`] of what this process was given in `TRACEPARENT`.
    pub fn of_environment() -> Self {
        Self::below(std::env::var(crate::TRACEPARENT).ok().as_deref())
    }

    /// The trace: 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        &self.trace
    }

    /// The span: 16 hexadecimal digits.
    pub fn span_id(&self) -> &str {
        &self.span
    }

    /// The span it is below.
    pub fn parent_id(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    /// The trace that a `traceparent` names.
    pub fn trace_of(traceparent: &str) -> Option<&str> {
        read(traceparent).map(|(trace, _)| trace)
    }

    /// The span that a `traceparent` names.
    pub fn span_of(traceparent: &str) -> Option<&str> {
        read(traceparent).map(|(_, span)| span)
    }
}

impl fmt::Display for TraceContext {
    /// The `traceparent` for whoever works on below this span.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-01", self.trace, self.span)
    }
}

/// A new span's id.
pub(crate) fn span_id() -> String {
    let mut id = Uuid::new_v4().simple().to_string();
    // the last digits are all random, and all zeroes is no id
    id.replace_range(..16, "");
    id
}

/// Trace and span of a `traceparent`; a later version may say more behind them.
fn read(text: &str) -> Option<(&str, &str)> {
    let is_hex = |word: &str, n| word.len() == n && word.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let mut words = text.trim().split('-');
    let (version, trace, span, flags) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let whole = version != "00" || words.next().is_none();
    let good = is_hex(version, 2) && version != "ff" && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2) && whole;
    let none = |word: &str| word.bytes().all(|b| b == b'0');
    (good && !none(trace) && !none(span)).then_some((trace, span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_goes_on_below_and_what_is_none_begins_one() {
        let first = TraceContext::begin();
        let next = TraceContext::below(Some(&first.to_string()));
        assert_eq!((next.trace_id(), next.parent_id()), (first.trace_id(), Some(first.span_id())));
        assert_ne!(next.span_id(), first.span_id());
        let theirs = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(TraceContext::trace_of(theirs), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        assert_eq!(
            TraceContext::span_of("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"),
            Some("00f067aa0ba902b7")
        );
        for wrong in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        ] {
            assert_eq!(TraceContext::trace_of(wrong), None, "{wrong}");
            assert_eq!(TraceContext::below(Some(wrong)).parent_id(), None, "{wrong}");
        }
    }
}
