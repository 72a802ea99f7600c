//! Daemons of other versions, played by a socket that says the same to everybody.

use super::*;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};

/// A daemon that answers everything with that.
struct Played {
    home: tempfile::TempDir,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Played {
    fn answering(content_type: &'static str, body: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(home.path().join("api.sock")).unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (told, body) = (asked.clone(), body.to_owned());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                told.lock().unwrap().push(head.join("\n"));
                let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            }
        });
        Self { home, asked }
    }

    fn client(&self) -> Client {
        let at = self.home.path().to_path_buf();
        Client::new(Paths { home: at.clone(), state: at.clone(), runtime: at.clone(), boxes: at })
    }

    fn asked(&self) -> String {
        self.asked.lock().unwrap().join("\n")
    }
}

const RESOURCES: &str = r#"[{"apiVersion":"hmz/v1","kind":"Environment","metadata":{"name":"box"},"spec":{"runtime":"docker"}}]"#;

#[tokio::test]
async fn a_listing_is_as_cells_where_the_daemon_knows_of_them_and_as_resources_where_not() {
    let now = Played::answering(table::MEDIA_TYPE, "NAME\tAGE\nbox\t5s\n");
    assert_eq!(now.client().listing("Environment", true).await.unwrap(), Listing::Cells("NAME\tAGE\nbox\t5s\n".into()));
    assert!(now.asked().contains("wide=true") && now.asked().contains("accept: text/tab-separated-values"), "{}", now.asked());

    let old = Played::answering(JSON, RESOURCES);
    let Listing::Resources(found) = old.client().listing("Environment", false).await.unwrap() else { panic!("cells") };
    assert_eq!(found, AnyResource::read_list("Environment", RESOURCES.as_bytes()).unwrap());
    // what it said is the first page
    assert_eq!(old.asked().matches("GET ").count(), 1, "{}", old.asked());
}

#[tokio::test]
async fn names_are_read_of_resources_where_the_daemon_says_no_names() {
    assert_eq!(Played::answering(JSON, r#"["box"]"#).client().names("Environment").await.unwrap(), ["box"]);
    assert_eq!(Played::answering(JSON, RESOURCES).client().names("Environment").await.unwrap(), ["box"]);
}

#[tokio::test]
async fn an_answer_that_is_neither_is_a_misunderstanding() {
    let error = Played::answering(JSON, r#"{"items":[]}"#).client().listing("Environment", false).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Internal);
}
