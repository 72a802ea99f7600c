mod backup;
mod conformance;
mod file;
mod migration;
mod model;
