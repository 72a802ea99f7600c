//! The daemon's API, as a verb uses it: HTTP over the Unix socket, streams as one JSON object a line.

use crate::{daemon, edge, watch};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use hmz_api::journal::Record;
use hmz_api::rest::{
    Applied, ApplyRequest, ApplyResult, Edit, EnvironmentUsage, Event, Planned, SetState, SettingsAnswer, UsageRequest,
    WatchLine, table,
};
use hmz_api::{AnyResource, Error, ErrorKind, Flow, Kind, Resource};
use hmz_server::Paths;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Write;
use tokio::net::UnixStream;
use uuid::Uuid;

/// Longest answer that is not a stream, and longest line of one, in bytes.
const MAX_ANSWER: usize = 64 << 20;

/// How many resources are asked for at a time.
const PAGE: usize = 5_000;

/// Longest listing as cells, in bytes: some millions of lines.
const MAX_LISTING: usize = 1 << 30;

/// What an answer is otherwise.
const JSON: &str = "application/json";

/// A listing.
#[derive(Debug, Clone, PartialEq)]
pub enum Listing {
    /// As cells, see [`table`].
    Cells(String),
    /// As the resources.
    Resources(Vec<AnyResource>),
}

/// A way to the daemon, which is started when it is missing.
#[derive(Debug, Clone)]
pub struct Client {
    paths: Paths,
}

impl Client {
    /// For one HMZ_HOME.
    pub const fn new(paths: Paths) -> Self {
        Self { paths }
    }

    async fn send(&self, method: Method, path: &str, body: Vec<u8>) -> Result<Response<Incoming>, Error> {
        self.send_accepting(method, path, body, JSON).await
    }

    async fn send_accepting(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        accept: &'static str,
    ) -> Result<Response<Incoming>, Error> {
        // a daemon that ends because it was idle closes its socket under us once; the next one is ours to start
        let mut last = None;
        for _ in 0..3 {
            let stream = daemon::connect(&self.paths).await?;
            match request(stream, method.clone(), path, body.clone(), accept).await {
                Ok(response) => return answer(response).await,
                Err(e) => last = Some(e),
            }
        }
        Err(last.unwrap_or_else(|| Error::failed("the daemon does not answer")))
    }

    async fn call<T: DeserializeOwned>(&self, method: Method, path: &str, body: Option<&impl Serialize>) -> Result<T, Error> {
        let body = match body {
            Some(body) => serde_json::to_vec(body).map_err(broken)?,
            None => Vec::new(),
        };
        let bytes = self.exchange(method, path, body).await?;
        serde_json::from_slice(&bytes).map_err(broken)
    }

    async fn get_bytes(&self, path: &str) -> Result<Bytes, Error> {
        self.exchange(Method::GET, path, Vec::new()).await
    }

    async fn exchange(&self, method: Method, path: &str, body: Vec<u8>) -> Result<Bytes, Error> {
        self.exchange_accepting(method, path, body, JSON).await.map(|(_, bytes)| bytes)
    }

    /// The answer, and whether it is what is accepted and not JSON.
    async fn exchange_accepting(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        accept: &'static str,
    ) -> Result<(bool, Bytes), Error> {
        // a question may be asked again when its answer breaks off
        let mut again = if method == Method::GET { 2 } else { 0 };
        loop {
            let response = self.send_accepting(method.clone(), path, body.clone(), accept).await?;
            let accepted = accept != JSON && response.headers().get(CONTENT_TYPE).is_some_and(|is| is == accept);
            match read_all(response.into_body(), if accepted { MAX_LISTING } else { MAX_ANSWER }).await {
                Ok(bytes) => return Ok((accepted, bytes)),
                Err(e) if again == 0 => return Err(e),
                Err(_) => again -= 1,
            }
        }
    }

    /// Declares resources. Names to be generated are chosen here: a request that is sent again, because the daemon died
    /// before it answered, means the same resources.
    ///
    /// # Errors
    /// When the daemon cannot be had or refuses the request as a whole.
    pub async fn apply(&self, mut request: ApplyRequest) -> Result<Vec<ApplyResult>, Error> {
        for metadata in request.resources.iter_mut().map(AnyResource::metadata_mut) {
            if let (true, Some(prefix)) = (metadata.name.is_empty(), &metadata.generate_name) {
                metadata.name = format!("{prefix}{}", &Uuid::new_v4().simple().to_string()[..8]);
            }
        }
        self.call(Method::POST, "/v1/apply", Some(&request)).await
    }

    /// Says what [`Client::apply`] would do. Nothing is changed.
    ///
    /// # Errors
    /// When the daemon cannot be had or would refuse the request as a whole.
    pub async fn plan(&self, request: ApplyRequest) -> Result<Vec<Planned>, Error> {
        self.call(Method::POST, "/v1/plan", Some(&request)).await
    }

    /// One resource; a flow as it is found from this directory.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    pub async fn get(&self, kind: &str, name: &str) -> Result<AnyResource, Error> {
        if kind == Flow::KIND {
            return self.flow(name).await.map(|flow| AnyResource::Flow(Box::new(flow)));
        }
        self.call(Method::GET, &format!("/v1/{kind}/{}", escape(name)), None::<&()>).await
    }

    /// One resource of a known kind.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    pub async fn get_as<K: Kind>(&self, name: &str) -> Result<Resource<K>, Error> {
        self.call(Method::GET, &format!("/v1/{}/{}", K::KIND, escape(name)), None::<&()>).await
    }

    /// A flow: a declared one, else one on disk (from this directory), else a built-in.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    pub async fn flow(&self, name: &str) -> Result<Resource<Flow>, Error> {
        let cwd = std::env::current_dir().map(|d| d.display().to_string()).unwrap_or_default();
        self.call(Method::GET, &format!("/v1/Flow/{}?cwd={}", escape(name), escape(&cwd)), None::<&()>).await
    }

    /// All resources of a kind, by name.
    ///
    /// # Errors
    /// When the daemon cannot be had.
    pub async fn list(&self, kind: &str) -> Result<Vec<AnyResource>, Error> {
        if kind == Flow::KIND {
            let cwd = std::env::current_dir().map(|d| d.display().to_string()).unwrap_or_default();
            return self.call(Method::GET, &format!("/v1/{kind}?cwd={}", escape(&cwd)), None::<&()>).await;
        }
        let first = self.get_bytes(&format!("/v1/{kind}?limit={PAGE}")).await?;
        self.list_from(kind, &first).await
    }

    /// All resources of a kind, the first page of which is there.
    async fn list_from(&self, kind: &str, first: &[u8]) -> Result<Vec<AnyResource>, Error> {
        let mut all = AnyResource::read_list(kind, first).map_err(broken)?;
        let mut ends = all.len() != PAGE;
        while let (false, Some(last)) = (ends, all.last().map(|one| one.metadata().name.clone())) {
            let text = self.get_bytes(&format!("/v1/{kind}?limit={PAGE}&after={}", escape(&last))).await?;
            let page = AnyResource::read_list(kind, &text).map_err(broken)?;
            // one that knows of no pages answers with all of them each time
            ends = page.len() != PAGE || page.first().is_some_and(|first| first.metadata().name <= last);
            all.extend(page);
        }
        Ok(all)
    }

    /// All resources of a kind for whoever only shows them, by name: as cells, where the daemon knows of them, and `wide` with
    /// all columns.
    ///
    /// # Errors
    /// When the daemon cannot be had.
    pub async fn listing(&self, kind: &str, wide: bool) -> Result<Listing, Error> {
        if kind == Flow::KIND {
            return self.list(kind).await.map(Listing::Resources);
        }
        let path = format!("/v1/{kind}?limit={PAGE}&wide={wide}");
        let (as_cells, bytes) = self.exchange_accepting(Method::GET, &path, Vec::new(), table::MEDIA_TYPE).await?;
        if !as_cells {
            return self.list_from(kind, &bytes).await.map(Listing::Resources);
        }
        let text = String::from_utf8(bytes.into()).map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
        Ok(Listing::Cells(text))
    }

    /// The names of a kind, in order.
    ///
    /// # Errors
    /// When the daemon cannot be had.
    pub async fn names(&self, kind: &str) -> Result<Vec<String>, Error> {
        if kind != Flow::KIND {
            let bytes = self.get_bytes(&format!("/v1/{kind}?names=true")).await?;
            // one that knows of no names answers with resources
            if let Ok(names) = serde_json::from_slice(&bytes) {
                return Ok(names);
            }
        }
        Ok(self.list(kind).await?.into_iter().map(|mut one| std::mem::take(&mut one.metadata_mut().name)).collect())
    }

    /// The names that are stored of a kind, of a daemon that runs already.
    ///
    /// # Errors
    /// When none does.
    pub async fn names_of_running(&self, kind: &str) -> Result<Vec<String>, Error> {
        self.ask_running(&format!("/v1/{kind}?names=true")).await
    }

    /// All resources of a kind, of a daemon that runs already.
    ///
    /// # Errors
    /// When none does.
    pub async fn list_of_running(&self, kind: &str) -> Result<Vec<AnyResource>, Error> {
        self.ask_running(&format!("/v1/{kind}")).await
    }

    /// All sets, of a daemon that runs already.
    ///
    /// # Errors
    /// When none does.
    pub async fn sets_of_running(&self) -> Result<Vec<SetState>, Error> {
        self.ask_running("/v1/sets").await
    }

    async fn ask_running<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let stream = UnixStream::connect(self.paths.socket()).await.map_err(|e| Error::failed(e.to_string()))?;
        let response = answer(request(stream, Method::GET, path, Vec::new(), JSON).await?).await?;
        serde_json::from_slice(&read_all(response.into_body(), MAX_ANSWER).await?).map_err(broken)
    }

    /// Asks for deletion; with `abandon` what is on a daemon that is gone for good is given up.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    pub async fn delete(&self, kind: &str, name: &str, abandon: bool) -> Result<(), Error> {
        let path = format!("/v1/{kind}/{}?abandon={abandon}", escape(name));
        self.call::<serde_json::Value>(Method::DELETE, &path, None::<&()>).await.map(drop)
    }

    /// Changes one resource in place.
    ///
    /// # Errors
    /// `NotFound` when there is none, `Conflict` when it was changed meanwhile.
    pub async fn edit(&self, kind: &str, name: &str, edit: &Edit) -> Result<Applied, Error> {
        self.call(Method::POST, &format!("/v1/{kind}/{}/edit", escape(name)), Some(edit)).await
    }

    /// Cancels a run.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    pub async fn cancel(&self, run: &str) -> Result<(), Error> {
        self.call::<serde_json::Value>(Method::POST, &format!("/v1/Run/{}/cancel", escape(run)), None::<&()>).await.map(drop)
    }

    /// What happened, oldest first: to one resource, or to all.
    ///
    /// # Errors
    /// When the daemon cannot be had.
    pub async fn events(&self, of: Option<(&str, &str)>) -> Result<Vec<Event>, Error> {
        self.call(Method::GET, &events_path(of, false), None::<&()>).await
    }

    /// The same, and what happens from now on. It outlives the daemon, see [`watch::events`].
    ///
    /// # Errors
    /// When the daemon cannot be had.
    pub async fn watch_events(
        &self,
        of: Option<(&str, &str)>,
    ) -> Result<impl Stream<Item = Result<Event, Error>> + use<>, Error> {
        let (client, path) = (self.clone(), events_path(of, true));
        let open = move || {
            let (client, path) = (client.clone(), path.clone());
            async move { Ok(lines(client.send(Method::GET, &path, Vec::new()).await?.into_body()).boxed()) }
        };
        Ok(watch::events(open().await?, open))
    }

    /// What the boxes of environments use, as of one look.
    ///
    /// # Errors
    /// When the daemon cannot be had.
    pub async fn usage(&self, of: &UsageRequest) -> Result<Vec<EnvironmentUsage>, Error> {
        self.call(Method::POST, "/v1/usage", Some(of)).await
    }

    /// The daemon's metrics, in the text format of Prometheus.
    ///
    /// # Errors
    /// When the daemon cannot be had.
    pub async fn metrics(&self) -> Result<String, Error> {
        let bytes = read_all(self.send(Method::GET, "/metrics", Vec::new()).await?.into_body(), MAX_ANSWER).await?;
        String::from_utf8(bytes.into()).map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))
    }

    /// What the daemon makes of settings.yaml.
    ///
    /// # Errors
    /// When the daemon cannot be had.
    pub async fn settings(&self) -> Result<SettingsAnswer, Error> {
        self.call(Method::GET, "/v1/settings", None::<&()>).await
    }

    /// The sets there are; with how many of its members are `ready`, for which each of them is read.
    ///
    /// # Errors
    /// When the daemon cannot be had.
    pub async fn sets(&self, ready: bool) -> Result<Vec<SetState>, Error> {
        self.call(Method::GET, &format!("/v1/sets?ready={ready}"), None::<&()>).await
    }

    /// The same, and again each time it changes, until the daemon ends.
    ///
    /// # Errors
    /// When the daemon cannot be had.
    pub async fn watch_settings(&self) -> Result<impl Stream<Item = Result<SettingsAnswer, Error>> + use<>, Error> {
        Ok(lines(self.send(Method::GET, "/v1/settings?watch=true", Vec::new()).await?.into_body()))
    }

    /// The store as one file, written to `file`.
    ///
    /// # Errors
    /// When the daemon cannot be had, or the file cannot be written.
    pub async fn backup(&self, file: &mut std::fs::File) -> Result<(), Error> {
        let mut body = self.send(Method::GET, "/v1/backup", Vec::new()).await?.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| Error::failed(format!("the daemon's answer broke off: {e}")))?;
            if let Ok(data) = frame.into_data() {
                file.write_all(&data).map_err(|e| edge::io("the backup", &e))?;
            }
        }
        Ok(())
    }

    /// The daemon's version.
    ///
    /// # Errors
    /// When the daemon cannot be had.
    pub async fn version(&self) -> Result<String, Error> {
        self.call(Method::GET, "/v1/version", None::<&()>).await
    }

    /// What is there of a kind, a bookmark, and then each change. It outlives the daemon, see [`watch::steady`].
    ///
    /// # Errors
    /// When the daemon cannot be had.
    pub async fn watch(
        &self,
        kind: &str,
        name: Option<&str>,
    ) -> Result<impl Stream<Item = Result<WatchLine, Error>> + use<>, Error> {
        let name = name.map(|n| format!("&name={}", escape(n))).unwrap_or_default();
        let path = format!("/v1/{kind}?watch=true{name}");
        let client = self.clone();
        let open = move || {
            let (client, path) = (client.clone(), path.clone());
            async move { Ok(lines(client.send(Method::GET, &path, Vec::new()).await?.into_body()).boxed()) }
        };
        Ok(watch::steady(open().await?, open))
    }

    /// The journal of a run from record `from` on. `attached`: the run is ours, and is cancelled when this stream is dropped.
    ///
    /// # Errors
    /// `NotFound` when there is no such run.
    pub async fn journal(
        &self,
        run: &str,
        from: usize,
        follow: bool,
        attached: bool,
    ) -> Result<impl Stream<Item = Result<Record, Error>> + use<>, Error> {
        let path = format!("/v1/Run/{}/journal?from={from}&follow={follow}&attached={attached}", escape(run));
        let response = self.send(Method::GET, &path, Vec::new()).await?;
        Ok(lines(response.into_body()))
    }
}

fn broken(e: serde_json::Error) -> Error {
    Error::new(ErrorKind::Internal, format!("the daemon and this program do not understand each other: {e}"))
        .hint("they may be of different versions: stop the old daemon, hmz version tells which runs")
}

fn events_path(of: Option<(&str, &str)>, watch: bool) -> String {
    let of = of.map(|(kind, name)| format!("&kind={kind}&name={}", escape(name))).unwrap_or_default();
    format!("/v1/events?watch={watch}{of}")
}

/// Percent-encodes what may not stand in a path segment or a query value.
fn escape(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(b).to_string(),
            b => format!("%{b:02X}"),
        })
        .collect()
}

async fn request(
    stream: UnixStream,
    method: Method,
    path: &str,
    body: Vec<u8>,
    accept: &'static str,
) -> Result<Response<Incoming>, Error> {
    let lost = |e: hyper::Error| Error::failed(format!("the daemon went away: {e}"));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
    // it ends with the exchange
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "hmz")
        .header(ACCEPT, accept)
        .header(CONTENT_TYPE, JSON)
        .body(Full::new(Bytes::from(body)))
        .map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
    sender.send_request(request).await.map_err(lost)
}

/// An answer, or the error it carries.
async fn answer(response: Response<Incoming>) -> Result<Response<Incoming>, Error> {
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let bytes = read_all(response.into_body(), MAX_ANSWER).await?;
    Err(serde_json::from_slice::<Error>(&bytes)
        .unwrap_or_else(|_| Error::new(ErrorKind::Internal, format!("the daemon answered {status}"))))
}

async fn read_all(body: Incoming, most: usize) -> Result<Bytes, Error> {
    http_body_util::Limited::new(body, most)
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .map_err(|e| Error::failed(format!("the daemon's answer broke off: {e}")))
}

/// One JSON object a line.
fn lines<T: DeserializeOwned + Send + 'static>(body: Incoming) -> impl Stream<Item = Result<T, Error>> {
    struct State {
        body: Incoming,
        held: Vec<u8>,
        done: bool,
    }
    stream::unfold(State { body, held: Vec::new(), done: false }, |mut state| async move {
        loop {
            if state.done {
                return None;
            }
            if let Some(end) = state.held.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = state.held.drain(..=end).collect();
                if line.len() > 1 {
                    return Some((serde_json::from_slice(&line).map_err(broken), state));
                }
                continue;
            }
            if state.held.len() > MAX_ANSWER {
                state.done = true;
                return Some((Err(Error::failed("the daemon sent a line without an end")), state));
            }
            match state.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        state.held.extend_from_slice(&data);
                    }
                }
                Some(Err(e)) => {
                    state.done = true;
                    return Some((Err(Error::failed(format!("the daemon went away: {e}"))), state));
                }
                None => return None,
            }
        }
    })
    // a reader may look once more at one that has ended
    .fuse()
    .boxed()
}

#[cfg(test)]
mod tests;
