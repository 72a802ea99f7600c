//! The trace a resource is of, told by the span it is worked on in.

use hmz_api::Metadata;
use hmz_api::kinds::annotation::TRACE;
use tracing::Span;

/// Fields of a reconcile's span that are known once its resource is.
pub(crate) fn note(metadata: &Metadata) {
    let span = Span::current();
    if let Some(owner) = metadata.owner_references.first() {
        span.record("run", owner.name.as_str());
    }
    let mut words = metadata.annotations.get(TRACE).into_iter().flat_map(|trace| trace.split('-')).skip(1);
    if let (Some(trace), Some(parent)) = (words.next(), words.next()) {
        span.record("trace_id", trace).record("parent_id", parent);
    }
}
