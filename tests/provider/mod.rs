//! A model provider on loopback that plays scripts, so that the real agent CLIs run without a model.
//!
//! It keeps no session: a prompt names its script as `[[script:NAME]]`, and the step is the number of tool rounds since
//! that prompt. So retries, resumed sessions and many sessions at once work by themselves. What it is asked is recorded,
//! within bounds, and a test can wait for it: what the model was told is the proof of where a command ran.
#![allow(dead_code, reason = "each test binary uses its own part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is part of tests, whose failures are panics")]

mod http;
mod messages;
pub mod script;

pub use messages::{Asked, ToolResult};
use script::{Action, Step};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many requests are kept, the oldest forgotten first.
const KEPT: usize = 500;
/// How many bytes of bodies are kept.
const KEPT_BYTES: usize = 64 << 20;

/// A request to the Messages API, as it was received.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Its headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: Value,
    /// What it says.
    pub asked: Asked,
    size: usize,
}

#[derive(Debug, Default)]
struct State {
    scripts: HashMap<String, Vec<Step>>,
    usual: Option<String>,
    tries: HashMap<(String, usize, String), u32>,
    requests: VecDeque<Recorded>,
    bytes: usize,
    other: Vec<String>,
    open: HashSet<String>,
    connections: HashMap<u64, TcpStream>,
    closing: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Waits until `found` finds something, and says so; `None` after `limit` or when the provider closes.
    fn wait<T>(&self, limit: Duration, mut found: impl FnMut(&State) -> Option<T>) -> Option<T> {
        let end = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            if let Some(it) = found(&state) {
                return Some(it);
            }
            let left = end.checked_duration_since(Instant::now())?;
            if state.closing {
                return None;
            }
            state = self.changed.wait_timeout(state, left).unwrap().0;
        }
    }
}

/// The provider; it ends with this value.
#[derive(Debug)]
pub struct Provider {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Provider {
    /// Starts one on a free port of loopback, with no script.
    pub fn start() -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST)
    }

    /// The same on another address of this machine, which what is not on it reaches.
    pub fn start_at(address: Ipv4Addr) -> Self {
        let listener = TcpListener::bind((address, 0)).expect("bind the provider");
        let address = listener.local_addr().expect("the provider's address");
        let shared = Arc::new(Shared::default());
        let acceptor = std::thread::spawn({
            let shared = shared.clone();
            move || accept(&listener, &shared)
        });
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// What goes into `ANTHROPIC_BASE_URL`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds a script, or replaces the one of that name. The last step is played again when it is asked once more.
    #[must_use]
    pub fn script(self, name: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        self.set_script(name, steps);
        self
    }

    /// The script for prompts that name none.
    #[must_use]
    pub fn usual_script(self, name: &str) -> Self {
        self.shared.lock().usual = Some(name.to_owned());
        self
    }

    /// As [`Provider::script`], of one that runs already.
    pub fn set_script(&self, name: &str, steps: impl IntoIterator<Item = Step>) {
        let steps: Vec<Step> = steps.into_iter().collect();
        assert!(!steps.is_empty(), "the script {name} has no step");
        self.shared.lock().scripts.insert(name.to_owned(), steps);
    }

    /// Opens a gate; the steps that wait for it go on, and those that will come do not wait.
    pub fn open(&self, gate: &str) {
        self.shared.lock().open.insert(gate.to_owned());
        self.shared.changed.notify_all();
    }

    /// Every request to the Messages API that is still kept, in order.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.lock().requests.iter().cloned().collect()
    }

    /// Paths that were asked for beside the Messages API, such as `HEAD /`.
    pub fn other_requests(&self) -> Vec<String> {
        self.shared.lock().other.clone()
    }

    /// What the model was told last of the tools it called in that script, in order.
    pub fn results(&self, script: &str) -> Vec<ToolResult> {
        let state = self.shared.lock();
        let of_script = |r: &&Recorded| r.asked.script.as_deref() == Some(script);
        state.requests.iter().rfind(of_script).map(|r| r.asked.results.clone()).unwrap_or_default()
    }

    /// Waits until step `round` of that script has been asked for.
    ///
    /// # Panics
    /// When it has not within `limit`.
    pub fn wait_for_round(&self, script: &str, round: usize, limit: Duration) -> Recorded {
        let is_it = |r: &&Recorded| r.asked.script.as_deref() == Some(script) && r.asked.round == round;
        self.shared
            .wait(limit, |state| state.requests.iter().find(is_it).cloned())
            .unwrap_or_else(|| panic!("step {round} of the script {script} was not asked for within {limit:?}"))
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.closing = true;
            for stream in state.connections.values() {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        }
        self.shared.changed.notify_all();
        // the acceptor looks at `closing` once it has a connection
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for (number, stream) in (0..).zip(listener.incoming()) {
        let Ok(stream) = stream else { continue };
        {
            let mut state = shared.lock();
            if state.closing {
                return;
            }
            let Ok(own) = stream.try_clone() else { continue };
            state.connections.insert(number, own);
        }
        let shared = shared.clone();
        std::thread::spawn(move || {
            // a client that goes away in the middle is what a killed agent does
            let _ = serve(stream, &shared);
            shared.lock().connections.remove(&number);
        });
    }
}

fn serve(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut connection = http::Connection::new(stream)?;
    while let Some(request) = connection.next()? {
        match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/v1/messages") => messages(&mut connection, request, shared)?,
            (method, path) => {
                shared.lock().other.push(format!("{method} {path}"));
                match (method, path) {
                    ("HEAD", _) => connection.empty(200)?,
                    ("POST", "/v1/messages/count_tokens") => connection.json(200, &[], &json!({"input_tokens": 100}))?,
                    ("GET", "/v1/models") => connection.json(
                        200,
                        &[],
                        &json!({"has_more": false, "data": [{"type": "model", "id": "scripted-1", "display_name": "Scripted 1",
                            "created_at": "2026-01-01T00:00:00Z"}]}),
                    )?,
                    _ => connection.json(404, &[], &messages::error_body(404))?,
                }
            }
        }
    }
    Ok(())
}

fn messages(connection: &mut http::Connection, request: http::Request, shared: &Shared) -> io::Result<()> {
    let Ok(body) = serde_json::from_slice::<Value>(&request.body) else {
        return connection.json(400, &[], &messages::error_body(400));
    };
    let mut asked = Asked::of(&body);
    let step = {
        let mut state = shared.lock();
        asked.script = asked.script.or_else(|| state.usual.clone());
        let session = request.headers.get("x-claude-code-session-id").cloned().unwrap_or_default();
        let step = choose(&mut state, &asked, session);
        let size = request.body.len();
        state.bytes += size;
        state.requests.push_back(Recorded { headers: request.headers, body: body.clone(), asked: asked.clone(), size });
        while state.requests.len() > KEPT || state.bytes > KEPT_BYTES {
            let Some(gone) = state.requests.pop_front() else { break };
            state.bytes -= gone.size;
        }
        step
    };
    shared.changed.notify_all();
    if let Some(delay) = step.delay {
        shared.wait(delay, |_| None::<()>);
    }
    if let Some(gate) = &step.gate {
        let opened = shared.wait(Duration::from_secs(600), |state| state.open.contains(gate).then_some(()));
        assert!(opened.is_some() || shared.lock().closing, "the gate {gate} was not opened");
    }
    match &step.action {
        Action::Error { status, headers } => connection.json(*status, headers, &messages::error_body(*status)),
        Action::Answer { .. } | Action::Stall => messages::answer(connection, &body, &asked, &step, || {
            shared.wait(Duration::from_secs(1), |_| None::<()>);
            !shared.lock().closing
        }),
    }
}

fn choose(state: &mut State, asked: &Asked, session: String) -> Step {
    if !asked.has_tools {
        return Step::say("Scripted title");
    }
    let Some(name) = &asked.script else { return Step::say("The prompt names no script.") };
    let Some(steps) = state.scripts.get(name) else { return Step::say(format!("There is no script {name}.")) };
    let round = asked.round.min(steps.len() - 1);
    let mut step = &steps[round];
    let tries = state.tries.entry((name.clone(), round, session)).or_default();
    let mut before = *tries;
    *tries += 1;
    while let Some((times, then)) = &step.then
        && before >= *times
    {
        before -= times;
        step = then;
    }
    step.clone()
}
