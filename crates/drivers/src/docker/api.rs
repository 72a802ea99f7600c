//! The Engine API: one connection a request, every answer read as plain JSON and with a bound.
//!
//! Answers are not decoded into generated models: one field that a newer daemon spells differently would cost a whole
//! listing. Every answer carries the daemon's own clock, which admission goes by.

use super::road::Road;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Largest answer that is read whole, in bytes: a listing of some ten thousand containers.
const MAX_ANSWER: usize = 64 << 20;
/// Longest line of a stream, in bytes.
const MAX_LINE: usize = 1 << 20;
/// The oldest API spoken (docker 20.10), as its minor version.
const OLDEST: u32 = 41;
/// How long a look is waited for at most: a daemon that is frozen is to be known as such soon. What changes something may
/// rightly take longer.
const LOOK: Duration = Duration::from_secs(30);
/// The newest API spoken.
const NEWEST: u32 = 51;

/// Why a request got no answer, or one that says no.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No answer.
    #[error("{0}")]
    Silent(String),
    /// The daemon said no, with this status and these words.
    #[error("{1}")]
    Said(u16, String),
}

impl Fault {
    /// The status the daemon answered with.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Said(status, _) => Some(*status),
            Self::Silent(_) => None,
        }
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The body.
    pub json: Value,
    /// The daemon's clock, to a second.
    pub now: Option<Timestamp>,
}

fn not_json(error: serde_json::Error) -> Fault {
    Fault::Silent(format!("its answer is not what was asked for: {error}"))
}

/// A daemon at the end of a road.
#[derive(Debug, Clone)]
pub struct Api {
    road: Arc<Road>,
    address: String,
    /// The minor version of the API spoken, from 1.41; `None` before it was asked.
    minor: Option<u32>,
    deadline: Duration,
}

impl Api {
    /// A daemon that people know as `address`, whose answers are waited for no longer than `deadline`.
    pub const fn new(road: Arc<Road>, address: String, deadline: Duration) -> Self {
        Self { road, address, minor: None, deadline }
    }

    /// The address, as `unix:///var/run/docker.sock`.
    pub fn address(&self) -> String {
        self.address.clone()
    }

    /// The way there.
    pub const fn road(&self) -> &Arc<Road> {
        &self.road
    }

    /// Whether it is at the same address and speaks the same version.
    pub fn speaks_as(&self, other: &Self) -> bool {
        (&self.address, self.minor) == (&other.address, other.minor)
    }

    /// Agrees on a version: the newest both ends speak.
    ///
    /// # Errors
    /// No answer, or a daemon older than 20.10.
    pub async fn negotiate(mut self) -> Result<Self, Fault> {
        let response = bounded(self.deadline.min(LOOK), self.send(Method::GET, "/_ping", None, &[])).await?;
        let said = response.headers().get("api-version").and_then(|v| v.to_str().ok()).unwrap_or("1.41").to_owned();
        let minor = said.strip_prefix("1.").and_then(|m| m.parse::<u32>().ok());
        match minor {
            Some(minor) if minor >= OLDEST => self.minor = Some(minor.min(NEWEST)),
            _ => return Err(Fault::Said(400, format!("it speaks API {said}, and 1.{OLDEST} (docker 20.10) or newer is needed"))),
        }
        Ok(self)
    }

    /// A GET.
    ///
    /// # Errors
    /// No answer, or one that says no.
    pub async fn get(&self, path: &str) -> Result<Answer, Fault> {
        self.call(Method::GET, path, None).await
    }

    /// A POST with a JSON body.
    ///
    /// # Errors
    /// No answer, or one that says no.
    pub async fn post(&self, path: &str, body: Option<&Value>) -> Result<Answer, Fault> {
        let body = body.map(|b| ("application/json", Bytes::from(b.to_string())));
        self.call(Method::POST, path, body).await
    }

    /// A POST of a tar archive.
    ///
    /// # Errors
    /// No answer, or one that says no.
    pub async fn post_tar(&self, path: &str, tar: Bytes) -> Result<Answer, Fault> {
        self.call(Method::POST, path, Some(("application/x-tar", tar))).await
    }

    /// A PUT of a tar archive.
    ///
    /// # Errors
    /// No answer, or one that says no.
    pub async fn put_tar(&self, path: &str, tar: Bytes) -> Result<Answer, Fault> {
        self.call(Method::PUT, path, Some(("application/x-tar", tar))).await
    }

    /// The same for one that takes its time.
    ///
    /// # Errors
    /// No answer, or one that says no.
    pub async fn put_tar_within(&self, path: &str, tar: Bytes, deadline: Duration) -> Result<Answer, Fault> {
        Self { deadline, ..self.clone() }.put_tar(path, tar).await
    }

    /// A GET of bytes, of which at most the first `limit` are read; and whether those are all.
    ///
    /// # Errors
    /// No answer, or one that says no.
    pub async fn get_bytes(&self, path: &str, limit: usize) -> Result<(Vec<u8>, bool), Fault> {
        let path = self.versioned(path);
        self.within(async {
            let response = checked(self.send(Method::GET, &path, None, &[]).await?).await?;
            first(response.into_body(), limit).await
        })
        .await
    }

    /// A header of the answer to a HEAD; `None` where nothing is there.
    ///
    /// # Errors
    /// No answer, or one that says no.
    pub async fn head(&self, path: &str, header: &str) -> Result<Option<String>, Fault> {
        let path = self.versioned(path);
        self.within(async {
            let response = self.send(Method::HEAD, &path, None, &[]).await?;
            if response.status() == hyper::StatusCode::NOT_FOUND {
                return Ok(None);
            }
            let response = checked(response).await?;
            Ok(response.headers().get(header).and_then(|v| v.to_str().ok()).map(str::to_owned))
        })
        .await
    }

    /// A DELETE.
    ///
    /// # Errors
    /// No answer, or one that says no.
    pub async fn delete(&self, path: &str) -> Result<Answer, Fault> {
        self.call(Method::DELETE, path, None).await
    }

    /// Opens a stream of JSON lines. Waits for the first byte without a deadline when `patient`.
    ///
    /// # Errors
    /// No answer, or one that says no.
    pub async fn stream(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, String)],
        patient: bool,
    ) -> Result<Lines, Fault> {
        let path = self.versioned(path);
        let sent = self.send(method, &path, None, headers);
        let response = if patient { sent.await? } else { self.within(sent).await? };
        let response = self.within(checked(response)).await?;
        Ok(Lines { body: response.into_body(), buffer: Vec::new(), ended: false })
    }

    /// A GET of a list, of whose entries only what `T` has is read; and the daemon's time. A daemon may say `null` for none.
    ///
    /// # Errors
    /// No answer, one that says no, or one that is no such list.
    pub async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<(Vec<T>, Option<Timestamp>), Fault> {
        let (bytes, now) = self.answer(Method::GET, path, None).await?;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok((Vec::new(), now));
        }
        let list: Option<Vec<T>> = serde_json::from_slice(&bytes).map_err(not_json)?;
        Ok((list.unwrap_or_default(), now))
    }

    async fn call(&self, method: Method, path: &str, body: Option<(&'static str, Bytes)>) -> Result<Answer, Fault> {
        let (bytes, now) = self.answer(method, path, body).await?;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Answer { json: Value::Null, now });
        }
        // an import answers with several objects; only its first is of interest
        let first = serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>().next();
        Ok(Answer { json: first.transpose().map_err(not_json)?.unwrap_or(Value::Null), now })
    }

    /// An answer's body, and the daemon's time.
    async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<(Vec<u8>, Option<Timestamp>), Fault> {
        let path = self.versioned(path);
        let deadline = if method == Method::GET { self.deadline.min(LOOK) } else { self.deadline };
        bounded(deadline, async {
            let response = checked(self.send(method, &path, body, &[]).await?).await?;
            let now = response.headers().get("date").and_then(|v| v.to_str().ok()).and_then(http_date);
            Ok((whole(response.into_body()).await?, now))
        })
        .await
    }

    fn versioned(&self, path: &str) -> String {
        format!("/v1.{}{path}", self.minor.unwrap_or(OLDEST))
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        bounded(self.deadline, work).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
        headers: &[(&'static str, String)],
    ) -> Result<Response<Incoming>, Fault> {
        let silent = |why: String| Fault::Silent(why);
        let stream = self.road.connect().await.map_err(silent)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| silent(self.road.broke(&e)))?;
        // The connection ends with the request's response; dropping the caller drops sender and body, which ends it too.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let mut request = Request::builder().method(method).uri(path).header(HOST, "docker");
        let bytes = match body {
            Some((kind, bytes)) => {
                request = request.header(CONTENT_TYPE, kind);
                bytes
            }
            None => Bytes::new(),
        };
        for (name, value) in headers {
            let mut value = HeaderValue::from_str(value).map_err(|e| silent(e.to_string()))?;
            value.set_sensitive(true);
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(bytes)).map_err(|e| silent(e.to_string()))?;
        sender.send_request(request).await.map_err(|e| silent(self.road.broke(&e)))
    }
}

async fn bounded<T>(deadline: Duration, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let late = |_| Fault::Silent(format!("no answer in {} s", deadline.as_secs_f64()));
    tokio::time::timeout(deadline, work).await.map_err(late)?
}

/// The lines of a stream, each a JSON value.
#[derive(Debug)]
pub struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
    ended: bool,
}

impl Lines {
    /// The next line; `None` at the end. May be cancelled and called again.
    ///
    /// # Errors
    /// A broken connection, a line that is no JSON or too long.
    pub async fn next(&mut self) -> Result<Option<Value>, Fault> {
        loop {
            if let Some(at) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=at).collect();
                match parsed(&line)? {
                    Some(value) => return Ok(Some(value)),
                    None => continue,
                }
            }
            if self.ended {
                let rest = std::mem::take(&mut self.buffer);
                return parsed(&rest);
            }
            if self.buffer.len() > MAX_LINE {
                return Err(Fault::Silent("a line of its answer is too long".into()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(e)) => return Err(Fault::Silent(format!("the connection broke: {e}"))),
                None => self.ended = true,
            }
        }
    }
}

fn parsed(line: &[u8]) -> Result<Option<Value>, Fault> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    serde_json::from_slice(line).map(Some).map_err(|e| Fault::Silent(format!("its answer is not JSON: {e}")))
}

/// Turns an answer that says no into the daemon's words.
async fn checked(response: Response<Incoming>) -> Result<Response<Incoming>, Fault> {
    let status = response.status();
    if status.is_success() || status == hyper::StatusCode::NOT_MODIFIED {
        return Ok(response);
    }
    let bytes = whole(response.into_body()).await?;
    let words = serde_json::from_slice::<Value>(&bytes)
        .ok()
        .and_then(|v| v.get("message").and_then(Value::as_str).map(str::to_owned))
        .unwrap_or_else(|| String::from_utf8_lossy(&bytes).trim().chars().take(4096).collect());
    Err(Fault::Said(meant(status.as_u16(), &words), if words.is_empty() { status.to_string() } else { words }))
}

/// The status docker would answer with: podman calls it trouble of its own when a name is taken, or when a container goes
/// away while it is looked at.
fn meant(status: u16, words: &str) -> u16 {
    let says = |all: [&str; 2]| status == 500 && all.iter().any(|said| words.ends_with(said));
    match status {
        _ if says(["that name is already in use", "container already exists"]) => 409,
        _ if says(["no such container", "container not known"]) => 404,
        _ => status,
    }
}

async fn whole(body: Incoming) -> Result<Vec<u8>, Fault> {
    match first(body, MAX_ANSWER).await? {
        (bytes, true) => Ok(bytes),
        (_, false) => Err(Fault::Silent("its answer is too long".into())),
    }
}

/// At most the first `limit` bytes, and whether those are all.
async fn first(mut body: Incoming, limit: usize) -> Result<(Vec<u8>, bool), Fault> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Fault::Silent(format!("the connection broke: {e}")))?;
        let data = frame.data_ref().map(AsRef::as_ref).unwrap_or_default();
        let room = limit.saturating_sub(bytes.len());
        if data.len() > room {
            bytes.extend(data.iter().take(room));
            return Ok((bytes, false));
        }
        bytes.extend_from_slice(data);
    }
    Ok((bytes, true))
}

fn http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

/// `text` as a query's value or a path's segment.
pub fn encoded(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(byte as char);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemons_clock_is_read() {
        assert_eq!(http_date("Mon, 30 Nov 2026 00:18:33 GMT"), "2026-11-30T00:18:33Z".parse().ok());
        assert_eq!(http_date("yesterday"), None);
    }

    #[test]
    fn what_podman_says_in_words_is_understood() {
        let taken = [
            "creating container storage: the container name \"a\" is already in use by 12. You have to remove that container to be able \
             to reuse that name: that name is already in use",
            "container create: name \"a\" is in use: container already exists",
        ];
        let gone = [
            "container 12 does not exist in database: no such container",
            "getting container from store \"12\": container not known",
        ];
        assert_eq!((taken.map(|words| meant(500, words)), gone.map(|words| meant(500, words))), ([409; 2], [404; 2]));
        assert_eq!([meant(500, "no space left on device"), meant(400, gone[0])], [500, 400]);
    }

    #[test]
    fn what_a_query_does_not_take_is_encoded() {
        assert_eq!(encoded("a/b:1 é"), "a%2Fb%3A1%20%C3%A9");
    }
}
