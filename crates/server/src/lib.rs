//! hmz-server
