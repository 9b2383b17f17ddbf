//! Renders lists in chunks, so that a large list is not in memory twice.

use std::iter::Fuse;

/// Writes a response with a list: the text before it, its elements, and the text after it.
pub struct ListResponseWriter<I: Iterator> {
    head: Vec<u8>,
    elements: Fuse<I>,
    write_element: fn(&mut Vec<u8>, I::Item),
    tail: Vec<u8>,
    is_first: bool,
}

impl<I: Iterator> ListResponseWriter<I> {
    /// `head` ends with the opening bracket of the list, `tail` begins with the closing one.
    pub(crate) fn new(
        head: Vec<u8>,
        elements: I,
        write_element: fn(&mut Vec<u8>, I::Item),
        tail: Vec<u8>,
    ) -> Self {
        Self { head, elements: elements.fuse(), write_element, tail, is_first: true }
    }

    /// Appends about `limit` bytes, and at most one element more. Returns true if there is more.
    pub fn write(&mut self, out: &mut Vec<u8>, limit: usize) -> bool {
        out.append(&mut self.head);
        while out.len() < limit {
            let Some(element) = self.elements.next() else {
                out.append(&mut self.tail);
                return false;
            };
            if !std::mem::take(&mut self.is_first) {
                out.push(b',');
            }
            (self.write_element)(out, element);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_together_are_the_response() {
        for count in 0..20 {
            for limit in 1..40 {
                let numbers = 0..count;
                let write = |out: &mut Vec<u8>, number: i32| {
                    out.extend_from_slice(number.to_string().as_bytes());
                };
                let (head, tail) = (b"{\"n\":[".to_vec(), b"]}".to_vec());
                let mut list = ListResponseWriter::new(head, numbers.clone(), write, tail);
                let (mut text, mut more) = (Vec::new(), true);
                while more {
                    let mut chunk = Vec::new();
                    more = list.write(&mut chunk, limit);
                    assert!(chunk.len() <= limit + 6, "{} of {limit} bytes", chunk.len());
                    text.extend(chunk);
                }
                let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
                let expected = format!("{{\"n\":[{}]}}", numbers.join(","));
                assert_eq!(String::from_utf8_lossy(&text), expected);
            }
        }
    }
}
