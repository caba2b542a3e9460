//! The answer to one message, in memory.

use std::net::SocketAddr;

use futures::{FutureExt, StreamExt};
use hickory_server::{
    net::{
        runtime::TokioTime,
        xfer::{BufDnsStreamHandle, Protocol},
    },
    proto::op::MessageType,
    server::{Request, RequestHandler, ResponseHandle},
};

use super::HEADER;

/// The answer to a message. `None` if it is no query, and so gets none.
pub(super) async fn respond(
    message: Vec<u8>,
    peer: SocketAddr,
    protocol: Protocol,
    proxy: &impl RequestHandler,
) -> Option<Vec<u8>> {
    let header: [u8; HEADER] = message.get(..HEADER)?.try_into().ok()?;
    let Ok(request) = Request::from_bytes(message, peer, protocol) else {
        return malformed(header);
    };
    if request.metadata.message_type == MessageType::Response {
        return None;
    }
    let (answers, mut sent) = BufDnsStreamHandle::with_buffer_size(peer, 1);
    let answers = ResponseHandle::new(peer, answers, protocol);
    proxy
        .handle_request::<_, TokioTime>(&request, answers)
        .await;
    // The handler has sent its answer when it returns.
    let sent = sent.next().now_or_never()??;
    Some(sent.into_parts().0)
}

/// The answer to a query that cannot be read: its header with the code for that.
fn malformed(mut header: [u8; HEADER]) -> Option<Vec<u8>> {
    const IS_ANSWER: u8 = 0b1000_0000;
    const OP_CODE_AND_RECURSION: u8 = 0b0111_1001;
    const CHECKING_DISABLED: u8 = 0b0001_0000;
    const FORMAT_ERROR: u8 = 1;
    if header[2] & IS_ANSWER != 0 {
        return None;
    }
    header[2] = header[2] & OP_CODE_AND_RECURSION | IS_ANSWER;
    header[3] = header[3] & CHECKING_DISABLED | FORMAT_ERROR;
    header[4..].fill(0);
    Some(header.to_vec())
}
