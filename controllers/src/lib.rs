//! hmz-controllers
