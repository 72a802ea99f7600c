//! The guest in real containers, driven by the client over the real socket.

mod commands;
mod descriptors;
mod ends;
mod harness;
mod trust;
