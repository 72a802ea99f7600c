//! hmz-flows
