//! hmz-agents
