mod conformance;
mod file;
mod model;
