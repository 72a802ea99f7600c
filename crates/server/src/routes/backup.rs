//! `GET /v1/backup`: the store as one file, at one revision, while it is in use.

use super::{Api, Failure};
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use hmz_api::Error;
use tokio_util::io::ReaderStream;

/// The file; its length comes first, so that one that breaks off is seen to.
pub(crate) async fn backup(State(api): State<Api>) -> Result<Response, Failure> {
    // what settings.yaml declares is in it as it is declared now
    api.settings.settled(&api.store).await?;
    let dir = &api.paths.state;
    let failed = |e: std::io::Error| Failure(Error::failed(format!("{}: {e}", dir.display())));
    // private from its beginning, and gone with the answer
    let file = tempfile::Builder::new().prefix(crate::leftovers::COPIES[0]).tempfile_in(dir).map_err(failed)?;
    api.store.backup(file.path()).await?;
    let file = tokio::fs::File::open(file.path()).await.map_err(failed)?;
    let length = file.metadata().await.map_err(failed)?.len();
    let head = [(CONTENT_TYPE, "application/vnd.sqlite3".to_owned()), (CONTENT_LENGTH, length.to_string())];
    Ok((head, Body::from_stream(ReaderStream::new(file))).into_response())
}
