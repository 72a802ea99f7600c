//! Events as a table.

use super::clean::one_line;
use super::table::{align, kind_word};
use hmz_api::columns::age::age;
use hmz_api::rest::Event;
use jiff::Timestamp;

/// The columns; without the object, which is known, for one that is described.
fn header(with_object: bool) -> Vec<String> {
    let all = ["LAST", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"];
    all.into_iter().filter(|name| with_object || *name != "OBJECT").map(str::to_owned).collect()
}

fn row(event: &Event, with_object: bool, now: Timestamp) -> Vec<String> {
    let mut cells = vec![age(Some(event.last), now), format!("{:?}", event.kind_of), event.reason.clone()];
    if with_object {
        cells.push(format!("{}/{}", kind_word(&event.kind), event.name));
    }
    cells.push(event.count.to_string());
    cells.push(event.message.clone());
    cells.iter().map(|cell| one_line(cell)).collect()
}

/// All of these.
pub fn table(events: &[Event], with_object: bool, now: Timestamp, width: Option<usize>) -> String {
    let rows = events.iter().map(|event| row(event, with_object, now));
    let lines: Vec<Vec<String>> = std::iter::once(header(with_object)).chain(rows).collect();
    align(&lines, &mut Vec::new(), width)
}

/// One after another, with the header before the first.
pub fn next(event: &Event, widths: &mut Vec<usize>, now: Timestamp, width: Option<usize>) -> String {
    let mut lines = if widths.is_empty() { vec![header(true)] } else { Vec::new() };
    lines.push(row(event, true, now));
    align(&lines, widths, width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::rest::EventType;

    #[test]
    fn an_event_is_a_row() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let event = |kind_of, reason: &str, message: &str, count| Event {
            kind: "Environment".into(),
            name: "box".into(),
            uid: uuid::Uuid::nil(),
            kind_of,
            reason: reason.into(),
            message: message.into(),
            count,
            first: at(0),
            last: at(60),
        };
        let events = [
            event(EventType::Normal, "Held", "Scheduled is True", 1),
            event(EventType::Warning, "OutOfMemory", "Created is False: it was\nkilled\u{1b}[2J", 12),
        ];
        insta::assert_snapshot!(table(&events, true, at(90), None));
        let mut widths = Vec::new();
        let one_by_one: String = events.iter().map(|event| next(event, &mut widths, at(90), None)).collect();
        assert_eq!(one_by_one.lines().count(), 3);
    }
}
