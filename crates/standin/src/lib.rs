//! hmz-standin
