//! hmz-store
