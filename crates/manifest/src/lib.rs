//! hmz-manifest
