//! As much of HTTP/1.1 as an agent CLI needs of its provider: keep-alive, bodies with a length or in chunks, chunked
//! answers that can be stopped anywhere.

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};

const HEAD_LIMIT: u64 = 64 << 10;
const BODY_LIMIT: u64 = 64 << 20;

/// A request.
#[derive(Debug)]
pub struct Request {
    /// Such as `POST`.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Vec<u8>,
}

/// One client's connection.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl Connection {
    /// Over an accepted socket.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(stream.try_clone()?), writer: stream })
    }

    fn line(&mut self, limit: &mut u64) -> io::Result<String> {
        let mut line = Vec::new();
        let read = (&mut self.reader).take(*limit).read_until(b'\n', &mut line)?;
        *limit -= read as u64;
        if line.pop() != Some(b'\n') {
            return Err(if read == 0 { io::ErrorKind::UnexpectedEof.into() } else { bad("a line has no end") });
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        String::from_utf8(line).map_err(|_| bad("a header is not text"))
    }

    /// The next request; `None` when the client is done.
    pub fn next(&mut self) -> io::Result<Option<Request>> {
        if self.reader.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let mut limit = HEAD_LIMIT;
        let first = self.line(&mut limit)?;
        let mut words = first.split(' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else { return Err(bad("no request line")) };
        let path = target.split('?').next().unwrap_or(target).to_owned();
        let mut headers = BTreeMap::new();
        loop {
            let line = self.line(&mut limit)?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| bad("a header has no colon"))?;
            headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
        let body = self.body(&headers)?;
        Ok(Some(Request { method: method.to_owned(), path, headers, body }))
    }

    fn body(&mut self, headers: &BTreeMap<String, String>) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if headers.get("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked")) {
            loop {
                let mut limit = HEAD_LIMIT;
                let line = self.line(&mut limit)?;
                let size = u64::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16)
                    .map_err(|_| bad("a chunk has no size"))?;
                if size + body.len() as u64 > BODY_LIMIT {
                    return Err(bad("the body is too long"));
                }
                (&mut self.reader).take(size).read_to_end(&mut body)?;
                self.line(&mut limit)?;
                if size == 0 {
                    return Ok(body);
                }
            }
        }
        let size: u64 = match headers.get("content-length") {
            Some(length) => length.parse().map_err(|_| bad("content-length is no number"))?,
            None => 0,
        };
        if size > BODY_LIMIT {
            return Err(bad("the body is too long"));
        }
        if (&mut self.reader).take(size).read_to_end(&mut body)? as u64 != size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(body)
    }

    /// A whole answer.
    pub fn json(&mut self, status: u16, headers: &[(String, String)], body: &Value) -> io::Result<()> {
        let body = body.to_string();
        let mut head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        self.writer.write_all(format!("{head}\r\n{body}").as_bytes())
    }

    /// The head alone, as HEAD wants it.
    pub fn empty(&mut self, status: u16) -> io::Result<()> {
        self.writer.write_all(format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n").as_bytes())
    }

    /// The head of a stream of events.
    pub fn begin_events(&mut self) -> io::Result<()> {
        self.writer.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n",
        )
    }

    /// One event, named by its `type`.
    pub fn event(&mut self, data: &Value) -> io::Result<()> {
        let name = data.get("type").and_then(Value::as_str).unwrap_or("message");
        let text = format!("event: {name}\ndata: {data}\n\n");
        self.writer.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())
    }

    /// The end of a stream of events.
    pub fn end_events(&mut self) -> io::Result<()> {
        self.writer.write_all(b"0\r\n\r\n")
    }

    /// Cuts the connection.
    pub fn cut(&self) {
        // a client that has gone already is as good as cut
        let _ = self.writer.shutdown(Shutdown::Both);
    }

    /// Whether the client has closed its end, as far as can be told without waiting.
    pub fn is_closed(&self) -> bool {
        let mut byte = [0];
        if self.writer.set_nonblocking(true).is_err() {
            return true;
        }
        let closed = match self.writer.peek(&mut byte) {
            Ok(read) => read == 0,
            Err(e) => e.kind() != io::ErrorKind::WouldBlock,
        };
        self.writer.set_nonblocking(false).is_err() || closed
    }
}
