//! One side of a session: what it has to send, in which order, and what it has received. No I/O and no clock of its own.
//!
//! - Order: what is of this stream alone, then what an earlier stream may have lost, then control frames, then data, one
//!   frame a stream in turn. A number is given to a frame when it is first sent, so a control frame overtakes data that waits.
//! - Bounds: a stream has at most one data frame that waits here, and its peer at most [`WINDOW`] bytes of it that were not
//!   consumed; not more data are under way than the pace allows; every numbered frame is kept until it is acknowledged.
//!   What is of this stream alone does not pile up for a peer that does not read.
//! - Both sides hold the other to it: data beyond the credit, of a stream that is not open, or an acknowledgement of what was
//!   never sent are errors, and end the session.

use super::ChannelError;
use super::frame::{Frame, MAX_DATA, MAX_MESSAGE, StreamId};
use super::pace::Pace;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

/// Bytes of a stream that may be on their way to whoever consumes them.
pub const WINDOW: u64 = 256 << 10;

/// Most answers to pings that wait to be sent: a peer pings some times in a window, and reads what it is answered.
const MAX_PONGS: usize = 64;

/// What has been received, for the one whose mux it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A message.
    Message(Vec<u8>),
    /// Bytes of a stream that is received; [`Mux::consumed`] has to be told when they are gone.
    Data(StreamId, Vec<u8>),
    /// A stream that is received has ended.
    End(StreamId),
    /// A stream that is sent is not wanted any more; it ends by itself.
    Stop(StreamId),
    /// A stream that is sent has more room.
    Room(StreamId),
    /// The peer answered a ping.
    Pong(u64),
}

#[derive(Debug)]
struct Sender {
    /// Bytes given to us.
    total: u64,
    /// Bytes the peer allows.
    credit: u64,
    /// What waits; at most one frame.
    waiting: Option<Vec<u8>>,
    ending: bool,
}

#[derive(Debug)]
struct Receiver {
    got: u64,
    granted: u64,
    consumed: u64,
    stopped: bool,
}

/// A numbered frame that the peer has not acknowledged.
#[derive(Debug)]
struct Kept {
    bytes: Vec<u8>,
    data: usize,
    sent: Instant,
    again: bool,
}

/// One side of a session.
#[derive(Debug, Default)]
pub struct Mux {
    urgent: VecDeque<Frame>,
    control: VecDeque<Vec<u8>>,
    control_bytes: usize,
    senders: HashMap<StreamId, Sender>,
    ready: VecDeque<StreamId>,
    kept: VecDeque<Kept>,
    kept_from: u64,
    resend: usize,
    under_way: usize,
    received: u64,
    acknowledged: u64,
    receivers: HashMap<StreamId, Receiver>,
    pace: Pace,
    made_room: Option<StreamId>,
}

impl Mux {
    /// Opens a stream to be sent. Its peer opens it to be received, before the first frame of it can arrive.
    pub fn open_sender(&mut self, id: StreamId) {
        self.senders.insert(id, Sender { total: 0, credit: WINDOW, waiting: None, ending: false });
    }

    /// Opens a stream to be received.
    pub fn open_receiver(&mut self, id: StreamId) {
        self.receivers.insert(id, Receiver { got: 0, granted: WINDOW, consumed: 0, stopped: false });
    }

    /// Queues a message; control frames are sent in the order they were queued.
    ///
    /// # Errors
    /// When it is too long, which changes nothing.
    pub fn message(&mut self, body: Vec<u8>) -> Result<(), ChannelError> {
        if body.len() > MAX_MESSAGE {
            return Err(ChannelError::Protocol("a message that is too large"));
        }
        self.push_control(&Frame::Message(body));
        Ok(())
    }

    /// Bytes of control frames that wait to be sent.
    pub fn control_waiting(&self) -> usize {
        self.control_bytes
    }

    /// How many bytes [`Self::data`] takes now, at most [`MAX_DATA`]; `None` when the stream is over.
    pub fn room(&self, id: StreamId) -> Option<usize> {
        let sender = self.senders.get(&id).filter(|s| !s.ending)?;
        if sender.waiting.is_some() {
            return Some(0);
        }
        Some(usize::try_from(sender.credit - sender.total).unwrap_or(MAX_DATA).min(MAX_DATA))
    }

    /// Queues bytes of a stream, no more than there is room for; those of a stream that is over go nowhere.
    pub fn data(&mut self, id: StreamId, bytes: Vec<u8>) {
        let room = self.room(id).unwrap_or(0);
        if bytes.is_empty() || bytes.len() > room {
            return;
        }
        if let Some(sender) = self.senders.get_mut(&id) {
            sender.total += bytes.len() as u64;
            sender.waiting = Some(bytes);
            self.ready.push_back(id);
        }
    }

    /// Ends a stream that is sent, behind what waits.
    pub fn end(&mut self, id: StreamId) {
        if let Some(sender) = self.senders.get_mut(&id).filter(|s| !s.ending) {
            sender.ending = true;
            if sender.waiting.is_none() {
                self.ready.push_back(id);
            }
        }
    }

    /// Wants no more of a stream that is received. What still comes is dropped.
    pub fn stop(&mut self, id: StreamId) {
        if let Some(receiver) = self.receivers.get_mut(&id).filter(|r| !r.stopped) {
            receiver.stopped = true;
            self.push_control(&Frame::Stop(id));
        }
    }

    /// Bytes of a received stream have gone on; the peer may send as many again.
    pub fn consumed(&mut self, id: StreamId, bytes: usize) {
        let Some(receiver) = self.receivers.get_mut(&id).filter(|r| !r.stopped) else { return };
        receiver.consumed += bytes as u64;
        let grant = receiver.consumed + WINDOW;
        // not for every few bytes
        if grant - receiver.granted >= WINDOW / 4 {
            receiver.granted = grant;
            self.push_control(&Frame::Credit(id, grant));
        }
    }

    /// Queues a ping.
    pub fn ping(&mut self, n: u64) {
        self.urgent.push_back(Frame::Ping(n));
    }

    /// Queues an acknowledgement of what has been received, when there is something new.
    pub fn acknowledge(&mut self) {
        if self.received > self.acknowledged {
            self.acknowledged = self.received;
            // it says what one that still waits would say
            self.urgent.retain(|frame| !matches!(frame, Frame::Ack(_)));
            self.urgent.push_back(Frame::Ack(self.received));
        }
    }

    /// How many numbered frames have been received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// A new stream is there, and the peer has received so many numbered frames: what it lost is sent again.
    ///
    /// # Errors
    /// When it cannot have received so many, or says fewer than it did.
    pub fn restart(&mut self, peer_received: u64) -> Result<(), ChannelError> {
        if peer_received < self.kept_from || peer_received > self.kept_from + self.kept.len() as u64 {
            return Err(ChannelError::Protocol("a count of frames that were never sent"));
        }
        self.drop_kept(peer_received);
        self.resend = 0;
        self.urgent.clear();
        self.acknowledged = self.received;
        self.pace.restart();
        Ok(())
    }

    fn push_control(&mut self, frame: &Frame) {
        let bytes = frame.encode();
        self.control_bytes += bytes.len();
        self.control.push_back(bytes);
    }

    fn drop_kept(&mut self, up_to: u64) -> Option<Kept> {
        let mut last = None;
        while self.kept_from < up_to
            && let Some(kept) = self.kept.pop_front()
        {
            self.under_way -= kept.data;
            self.kept_from += 1;
            self.resend = self.resend.saturating_sub(1);
            last = Some(kept);
        }
        last
    }

    fn may_send_data(&self) -> bool {
        self.under_way < self.pace.window()
    }

    /// Whether [`Self::next`] has something.
    pub fn has_next(&self) -> bool {
        !self.urgent.is_empty()
            || self.resend < self.kept.len()
            || !self.control.is_empty()
            || (!self.ready.is_empty() && self.may_send_data())
    }

    /// The stream whose frame [`Self::next`] returned last: it has room again. Told once.
    pub fn made_room(&mut self) -> Option<StreamId> {
        self.made_room.take()
    }

    /// The next bytes to send, one frame.
    pub fn next(&mut self, now: Instant) -> Option<Vec<u8>> {
        if let Some(frame) = self.urgent.pop_front() {
            return Some(frame.encode());
        }
        if let Some(kept) = self.kept.get_mut(self.resend) {
            self.resend += 1;
            kept.again = true;
            return Some(kept.bytes.clone());
        }
        if let Some(bytes) = self.control.pop_front() {
            self.control_bytes -= bytes.len();
            return Some(self.keep(bytes, 0, now));
        }
        if !self.may_send_data() {
            return None;
        }
        let id = self.ready.pop_front()?;
        let sender = self.senders.get_mut(&id)?;
        match sender.waiting.take() {
            Some(bytes) => {
                if sender.ending {
                    self.ready.push_back(id);
                }
                let len = bytes.len();
                self.made_room = Some(id);
                Some(self.keep(Frame::Data(id, bytes).encode(), len, now))
            }
            None => {
                self.senders.remove(&id);
                Some(self.keep(Frame::End(id).encode(), 0, now))
            }
        }
    }

    fn keep(&mut self, bytes: Vec<u8>, data: usize, now: Instant) -> Vec<u8> {
        self.under_way += data;
        self.kept.push_back(Kept { bytes: bytes.clone(), data, sent: now, again: false });
        self.resend = self.kept.len();
        bytes
    }

    /// Takes in a frame.
    ///
    /// # Errors
    /// When no peer of ours sends it: the session is over.
    pub fn receive(&mut self, frame: Frame, now: Instant) -> Result<Option<Event>, ChannelError> {
        if frame.is_numbered() {
            self.received += 1;
        }
        match frame {
            Frame::Message(body) => return Ok(Some(Event::Message(body))),
            Frame::Data(id, bytes) => {
                let receiver = self.receivers.get_mut(&id).ok_or(ChannelError::Protocol("data of a stream that is not open"))?;
                receiver.got += bytes.len() as u64;
                if receiver.got > receiver.granted {
                    return Err(ChannelError::Protocol("data beyond their credit"));
                }
                return Ok((!receiver.stopped).then_some(Event::Data(id, bytes)));
            }
            Frame::End(id) => {
                let receiver =
                    self.receivers.remove(&id).ok_or(ChannelError::Protocol("the end of a stream that is not open"))?;
                return Ok((!receiver.stopped).then_some(Event::End(id)));
            }
            // one that has ended crossed it
            Frame::Stop(id) => {
                if let Some(sender) = self.senders.get_mut(&id) {
                    let queued = sender.waiting.take().is_some() || sender.ending;
                    sender.ending = true;
                    if !queued {
                        self.ready.push_back(id);
                    }
                    return Ok(Some(Event::Stop(id)));
                }
            }
            Frame::Credit(id, total) => {
                if let Some(sender) = self.senders.get_mut(&id) {
                    if total < sender.credit || total > sender.total + WINDOW {
                        return Err(ChannelError::Protocol("a credit nobody gives"));
                    }
                    sender.credit = total;
                    return Ok(Some(Event::Room(id)));
                }
            }
            Frame::Ack(n) => {
                // what is to be sent again was not received when the stream began, and may not be acknowledged unsent
                if n < self.kept_from || n > self.kept_from + self.resend as u64 {
                    return Err(ChannelError::Protocol("an acknowledgement of what was never sent"));
                }
                let full = !self.ready.is_empty() && !self.may_send_data();
                let before = self.under_way;
                if let Some(last) = self.drop_kept(n).filter(|kept| !kept.again) {
                    self.pace.heard(now.saturating_duration_since(last.sent), before - self.under_way, full, now);
                }
            }
            Frame::Ping(n) => {
                if self.urgent.iter().filter(|frame| matches!(frame, Frame::Pong(_))).count() >= MAX_PONGS {
                    return Err(ChannelError::Protocol("pings whose answers nobody reads"));
                }
                self.urgent.push_back(Frame::Pong(n));
            }
            Frame::Pong(n) => return Ok(Some(Event::Pong(n))),
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
