//! hmz-guest
