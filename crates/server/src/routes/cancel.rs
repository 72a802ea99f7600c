//! `POST /v1/Run/NAME/cancel`.

use super::{Api, Failure};
use axum::Json;
use axum::extract::{Path, State};

/// Cancels a run; one that has ended stays as it is.
pub(crate) async fn cancel(State(api): State<Api>, Path(name): Path<String>) -> Result<Json<serde_json::Value>, Failure> {
    crate::attach::cancel(&api.store, &name).await?;
    Ok(Json(serde_json::json!({})))
}
