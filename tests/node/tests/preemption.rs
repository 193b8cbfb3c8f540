//! A critical pod comes to a full node: the right pods end for it, it starts when they have, and the
//! node tells the story.
//!
//! What the machine has is read here as well, so that the agent's own reckoning is put to the test.

mod full;
mod restarts;
mod room;
