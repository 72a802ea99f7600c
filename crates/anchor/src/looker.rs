//! Looks at a caller's descriptors in a thread of its own while the tracer decides, and asks the box for its command while the tracer
//! makes the caller's exec the stand-in's: what the tracer waits for then is the caller alone.
//!
//! One caller at a time, as the tracer has them.

use crate::ahead::{self, Around};
use crate::arguments::Strings;
use crate::aside::Aside;
use crate::late::Reached;
use crate::policy::Target;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SendError, Sender, channel};

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
    /// What else is known of its caller, when that is all.
    pub(crate) around: Option<Around>,
}

/// The tracer's side.
pub(crate) struct Looker {
    callers: Sender<Caller>,
    /// What became of each order: it came back, or has begun.
    returned: Receiver<Option<Order>>,
    /// `None` where it cannot be beside the tracer.
    aside: Option<Aside>,
}

/// A waiting thread, and what becomes of it. One whose orders end without any is forgotten.
struct Caller {
    tid: i32,
    orders: Receiver<Order>,
}

impl Looker {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there can be none.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (callers, asked) = channel();
        let (returns, returned) = channel();
        let (tells, told) = channel();
        let work = move || {
            let aside = Aside::this_thread();
            if tells.send(aside.clone()).is_ok() {
                look_and_begin(&asked, &returns, aside.as_ref());
            }
        };
        std::thread::Builder::new().name("looker".into()).spawn(work)?;
        let aside = told.recv().map_err(std::io::Error::other)?;
        Ok(Self { callers, returned, aside })
    }

    /// Begins to look at a waiting thread.
    pub(crate) fn look(&self, tid: i32) -> Option<Looking<'_>> {
        let (orders, ordered) = channel();
        if let Some(aside) = &self.aside {
            aside.make_way();
        }
        self.callers.send(Caller { tid, orders: ordered }).ok()?;
        Some(Looking { looker: self, orders })
    }
}

/// A caller that is being looked at. Dropped, nothing begins.
pub(crate) struct Looking<'a> {
    looker: &'a Looker,
    orders: Sender<Order>,
}

impl Looking<'_> {
    /// Begins its command as soon as it was seen, and waits no longer than for that. Gives the order back when something is not known
    /// that its command needs.
    pub(crate) fn begin(self, order: Order) -> Option<Order> {
        match self.orders.send(order) {
            // a thread that is gone with it has closed the socket, which the stand-in takes for our end
            Ok(()) => self.looker.returned.recv().unwrap_or(None),
            Err(SendError(order)) => Some(order),
        }
    }
}

fn look_and_begin(asked: &Receiver<Caller>, returns: &Sender<Option<Order>>, aside: Option<&Aside>) {
    let next = || {
        aside.inspect(|aside| aside.waits());
        let caller = asked.recv();
        aside.inspect(|aside| aside.runs());
        caller
    };
    while let Ok(Caller { tid, orders }) = next() {
        let fds = ahead::descriptors(tid);
        let Ok(mut order) = orders.recv() else { continue };
        let (Some(fds), Some(around)) = (fds, order.around.take()) else {
            // the tracer is gone with its process only
            let _ = returns.send(Some(order));
            continue;
        };
        let _ = returns.send(None);
        let Order { there, socket, target, strings, .. } = order;
        there.begin_told(socket, target, around.introduce(strings, fds));
    }
}
