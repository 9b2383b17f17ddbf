//! Frames between the nodes of a cluster.

use tsd_cluster_net::check_frames;

/// Longest frame, bytes.
const LIMIT: usize = 1 << 20;

/// A stream of frames, read as requests and as answers.
pub(crate) fn node_frames(input: &[u8]) {
    let frames = check_frames(input, LIMIT);
    assert!(frames <= input.len() / 4, "a frame has a length of four bytes");
    // Any input is also tried as the content of one frame.
    let framed = [&(input.len() as u32).to_be_bytes()[..], input].concat();
    assert!(check_frames(&framed, LIMIT) <= 1, "one frame");
}
