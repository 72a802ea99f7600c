//! Two sides against each other over a way that is slow, cut and made again.

use super::*;
use crate::channel::frame::Decoder;
use proptest::prelude::*;
use std::collections::BTreeMap;

const A: StreamId = StreamId { command: 1, index: 0 };
const B: StreamId = StreamId { command: 1, index: 1 };

/// One side, what it sent and what it got.
#[derive(Default)]
struct Side {
    mux: Mux,
    decoder: Decoder,
    /// Bytes of each stream that wait to be sent.
    source: BTreeMap<StreamId, Vec<u8>>,
    got: BTreeMap<StreamId, Vec<u8>>,
    /// Received and not consumed.
    held: BTreeMap<StreamId, usize>,
    messages: Vec<Vec<u8>>,
    ended: Vec<StreamId>,
}

impl Side {
    fn feed(&mut self) {
        for (id, bytes) in &mut self.source {
            while let Some(room) = self.mux.room(*id).filter(|room| *room > 0) {
                if bytes.is_empty() {
                    self.mux.end(*id);
                    break;
                }
                let rest = bytes.split_off(room.min(bytes.len()));
                self.mux.data(*id, std::mem::replace(bytes, rest));
            }
        }
    }

    fn hear(&mut self, bytes: &[u8], now: Instant) {
        self.decoder.feed(bytes);
        while let Some(frame) = self.decoder.take().expect("a frame") {
            match self.mux.receive(frame, now).expect("a good peer") {
                Some(Event::Data(id, bytes)) => {
                    *self.held.entry(id).or_default() += bytes.len();
                    assert!(self.held[&id] as u64 <= WINDOW, "more is held than the window");
                    self.got.entry(id).or_default().extend(bytes);
                }
                Some(Event::Message(body)) => self.messages.push(body),
                Some(Event::End(id)) => self.ended.push(id),
                _ => {}
            }
        }
        self.mux.acknowledge();
    }

    fn consume(&mut self) {
        for (id, held) in std::mem::take(&mut self.held) {
            self.mux.consumed(id, held);
        }
    }
}

fn pair() -> (Side, Side) {
    let (mut a, mut b) = (Side::default(), Side::default());
    for (id, from, to) in [(A, 0, 1), (B, 1, 0)] {
        let both = [&mut a.mux, &mut b.mux];
        both[from].open_sender(id);
        both[to].open_receiver(id);
    }
    (a, b)
}

/// Moves at most `most` bytes one way; what does not fit waits in `wire`.
fn carry(from: &mut Side, to: &mut Side, wire: &mut Vec<u8>, most: usize, now: Instant) {
    while wire.len() < most
        && let Some(bytes) = from.mux.next(now)
    {
        wire.extend(bytes);
    }
    let rest = wire.split_off(most.min(wire.len()));
    to.hear(wire, now);
    *wire = rest;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn everything_arrives_once_and_in_order(
        len in 0usize..600_000,
        steps in proptest::collection::vec((1usize..60_000, 1usize..60_000, 0u8..12), 1..60),
    ) {
        let (mut a, mut b) = pair();
        let bytes = |n: usize, salt: u8| (0..n).map(|i| (i / 7) as u8 ^ salt).collect::<Vec<u8>>();
        a.source.insert(A, bytes(len, 1));
        b.source.insert(B, bytes(len / 2, 2));
        let (mut there, mut back, start) = (Vec::new(), Vec::new(), Instant::now());
        let mut said = Vec::new();
        let mut round = 0u64;
        for (to, from, what) in steps.iter().chain(std::iter::repeat(&(60_000, 60_000, 11))) {
            let now = start + std::time::Duration::from_millis(round);
            round += 1;
            prop_assert!(round < 5_000, "it hangs: {} {} of {len}", a.ended.len(), b.got.get(&A).map_or(0, Vec::len));
            a.feed();
            b.feed();
            carry(&mut a, &mut b, &mut there, *to, now);
            carry(&mut b, &mut a, &mut back, *from, now);
            match what {
                0 => {
                    // cut: what is under way is lost
                    there.clear();
                    back.clear();
                    (a.decoder, b.decoder) = (Decoder::default(), Decoder::default());
                    let (got_a, got_b) = (a.mux.received(), b.mux.received());
                    a.mux.restart(got_b).expect("a count");
                    b.mux.restart(got_a).expect("a count");
                }
                1 => {
                    let body = round.to_le_bytes().to_vec();
                    a.mux.message(body.clone()).expect("it is short");
                    said.push(body);
                }
                _ => {
                    a.consume();
                    b.consume();
                }
            }
            if b.ended == [A] && a.ended == [B] && b.messages.len() == said.len() && !a.mux.has_next() && !b.mux.has_next() {
                break;
            }
        }
        prop_assert!(b.got.remove(&A).unwrap_or_default() == bytes(len, 1));
        prop_assert!(a.got.remove(&B).unwrap_or_default() == bytes(len / 2, 2));
        prop_assert_eq!(b.messages, said);
    }

    #[test]
    fn a_peer_that_lies_ends_it_and_nothing_else(frames in proptest::collection::vec((0u8..6, 0u64..4, 0u64..1_000_000), 0..40)) {
        let (mut a, _) = pair();
        a.source.insert(A, vec![0; 100_000]);
        for (kind, command, n) in frames {
            a.feed();
            while a.mux.next(Instant::now()).is_some() {}
            let id = StreamId { command, index: (n % 3) as u8 };
            let frame = match kind {
                0 => Frame::Data(id, vec![0; (n % 100) as usize + 1]),
                1 => Frame::End(id),
                2 => Frame::Stop(id),
                3 => Frame::Credit(id, n),
                4 => Frame::Ack(n % 10),
                _ => Frame::Ping(n),
            };
            if a.mux.receive(frame, Instant::now()).is_err() {
                break;
            }
        }
    }
}

#[test]
fn control_goes_before_data_and_data_in_turn() {
    let (mut a, _) = pair();
    let other = StreamId { command: 2, index: 0 };
    a.mux.open_sender(other);
    for id in [A, other] {
        a.mux.data(id, vec![0; MAX_DATA]);
    }
    a.mux.message(b"signal".to_vec()).expect("it is short");
    let mut decoder = Decoder::default();
    let mut next = |a: &mut Side| {
        decoder.feed(&a.mux.next(Instant::now()).expect("a frame"));
        decoder.take().expect("it decodes").expect("whole")
    };
    assert_eq!(next(&mut a), Frame::Message(b"signal".to_vec()));
    assert!(matches!(next(&mut a), Frame::Data(A, _)));
    a.mux.data(A, vec![1]);
    assert!(matches!(next(&mut a), Frame::Data(id, _) if id == other));
    assert_eq!(next(&mut a), Frame::Data(A, vec![1]));
    assert!(a.mux.next(Instant::now()).is_none());
}

#[test]
fn what_no_peer_sends_is_an_error() {
    let now = Instant::now();
    let unknown = StreamId { command: 9, index: 0 };
    for lie in [
        Frame::Data(unknown, vec![1]),
        Frame::End(unknown),
        // one we send
        Frame::Data(A, vec![1]),
        Frame::Credit(A, 2 * WINDOW),
        Frame::Credit(A, 0),
        Frame::Ack(1),
    ] {
        let (mut a, _) = pair();
        assert!(a.mux.receive(lie.clone(), now).is_err(), "{lie:?}");
    }
    let (mut a, _) = pair();
    for _ in 0..WINDOW / MAX_DATA as u64 {
        a.mux.receive(Frame::Data(B, vec![0; MAX_DATA]), now).expect("within its credit");
    }
    assert!(a.mux.receive(Frame::Data(B, vec![0]), now).is_err());
    let (mut a, _) = pair();
    assert!(a.mux.restart(1).is_err());
}

#[test]
fn a_stopped_stream_ends_and_its_rest_is_dropped() {
    let (mut a, mut b) = pair();
    let now = Instant::now();
    a.mux.data(A, vec![1; MAX_DATA]);
    let first = a.mux.next(now).expect("data");
    a.mux.data(A, vec![2; 10]);
    b.mux.stop(A);
    let stop = b.mux.next(now).expect("a stop");
    a.hear(&stop, now);
    assert_eq!(a.mux.room(A), None);
    let end = a.mux.next(now).expect("an acknowledgement");
    let end = [end, a.mux.next(now).expect("the end")].concat();
    b.hear(&first, now);
    b.hear(&end, now);
    assert!(b.got.is_empty() && b.ended.is_empty());
    // and what crossed is no lie
    assert!(b.mux.receive(Frame::Stop(A), now).is_ok());
}

#[test]
fn what_waits_is_bounded() {
    let (mut a, _) = pair();
    let now = Instant::now();
    let mut sent = 0;
    for n in 0..400u64 {
        let id = StreamId { command: n, index: 0 };
        a.mux.open_sender(id);
        for _ in 0..100 {
            let room = a.mux.room(id).expect("open");
            a.mux.data(id, vec![0; room]);
            while let Some(bytes) = a.mux.next(now) {
                sent += bytes.len();
            }
        }
    }
    // nobody acknowledges
    assert!(sent <= super::super::pace::MAX, "{sent}");
    let kept: usize = a.mux.kept.iter().map(|kept| kept.bytes.len()).sum();
    let waiting: usize = a.mux.senders.values().filter_map(|s| s.waiting.as_ref()).map(Vec::len).sum();
    assert!(kept <= super::super::pace::MAX && waiting <= 400 * MAX_DATA, "{kept} {waiting}");
}

#[test]
fn what_is_of_one_stream_does_not_pile_up_for_a_peer_that_does_not_read() {
    let now = Instant::now();
    let (mut a, _) = pair();
    for _ in 0..1000 {
        a.mux.receive(Frame::Message(vec![1]), now).expect("a message");
        a.mux.acknowledge();
    }
    assert_eq!(std::iter::from_fn(|| a.mux.next(now)).count(), 1, "one acknowledgement of all of them");
    let heard = (0..1_000_000).take_while(|n| a.mux.receive(Frame::Ping(*n), now).is_ok()).count();
    assert!(heard < 1000, "{heard} pings are to be answered");
}
