//! Looks at a caller in a thread of its own while the tracer decides, and asks the box for its command while the tracer makes the
//! caller's exec the stand-in's: what the tracer waits for then is the caller alone.
//!
//! One caller at a time, as the tracer has them. Each look is either begun or dropped before the next.

use crate::ahead::{self, Seen};
use crate::arguments::Strings;
use crate::late::Reached;
use crate::policy::Target;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A command to be begun as it was seen.
pub(crate) struct Order {
    /// Where.
    pub(crate) there: Reached,
    /// Our end of its stand-in's socket.
    pub(crate) socket: UnixStream,
    /// What is run.
    pub(crate) target: Target,
    /// The arguments and variables.
    pub(crate) strings: Strings,
}

/// The tracer's side.
pub(crate) struct Looker {
    callers: Sender<i32>,
    /// Whether the caller can be told of, once a look.
    found: Receiver<bool>,
    /// What becomes of it, once a look.
    orders: Sender<Option<Order>>,
}

impl Looker {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there can be none.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (callers, asked) = channel();
        let (told, found) = channel();
        let (orders, ordered) = channel();
        std::thread::Builder::new().name("looker".into()).spawn(move || look_and_begin(&asked, &told, &ordered))?;
        Ok(Self { callers, found, orders })
    }

    /// Begins to look at a waiting thread.
    pub(crate) fn look(&self, tid: i32) -> Option<Looking<'_>> {
        self.callers.send(tid).ok()?;
        Some(Looking { looker: self, found: None, ordered: false })
    }
}

/// A caller that is being looked at. Dropped, nothing begins.
pub(crate) struct Looking<'a> {
    looker: &'a Looker,
    found: Option<bool>,
    ordered: bool,
}

impl Looking<'_> {
    /// Whether all is known that its command needs. Waits for the look.
    pub(crate) fn is_known(&mut self) -> bool {
        *self.found.get_or_insert_with(|| self.looker.found.recv().unwrap_or(false))
    }

    /// Begins its command, which is not waited for. Only when all is known: else the socket closes.
    pub(crate) fn begin(mut self, order: Order) {
        if self.is_known() {
            self.ordered = true;
            // a thread that is gone closes the socket, which the stand-in takes for our end
            let _ = self.looker.orders.send(Some(order));
        }
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        if self.is_known() && !self.ordered {
            let _ = self.looker.orders.send(None);
        }
    }
}

fn look_and_begin(asked: &Receiver<i32>, told: &Sender<bool>, ordered: &Receiver<Option<Order>>) {
    while let Ok(tid) = asked.recv() {
        let seen: Option<Seen> = ahead::look(tid);
        if told.send(seen.is_some()).is_err() {
            return;
        }
        let Some(seen) = seen else { continue };
        match ordered.recv() {
            Ok(Some(Order { there, socket, target, strings })) => there.begin_told(socket, target, seen.with(strings)),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}
