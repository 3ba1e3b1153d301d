//! The operation under a timeout.
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Done at its first poll, or never. The compiler cannot see which, nor through the call.
pub struct Operation {
    value: Option<u64>,
}

impl Operation {
    pub fn ready() -> Self {
        Operation { value: Some(1) }
    }

    pub fn never() -> Self {
        Operation { value: None }
    }
}

impl Future for Operation {
    type Output = u64;

    #[inline(never)]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u64> {
        match black_box(self.value) {
            Some(value) => Poll::Ready(value),
            None => Poll::Pending,
        }
    }
}
