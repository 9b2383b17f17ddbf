//! Decoded pictures.

use std::{collections::BTreeSet, io::Cursor};

/// A picture, three bytes a pixel.
pub(crate) struct Picture {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pixels: Vec<u8>,
}

impl Picture {
    pub(crate) fn decode(file: &[u8]) -> Self {
        let mut reader = png::Decoder::new(Cursor::new(file)).read_info().expect("a PNG file");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
        let info = reader.next_frame(&mut pixels).expect("pixels");
        assert_eq!(info.color_type, png::ColorType::Rgb);
        Self { width: info.width as usize, height: info.height as usize, pixels }
    }

    /// Different colors.
    pub(crate) fn colors(&self) -> usize {
        self.pixels.chunks(3).collect::<BTreeSet<_>>().len()
    }

    /// Positions of the pixels near a color, from left to right.
    pub(crate) fn find(&self, color: [u8; 3]) -> Vec<(usize, usize)> {
        let is_near = |pixel: &[u8]| pixel.iter().zip(color).all(|(a, b)| a.abs_diff(b) < 30);
        let found = self.pixels.chunks(3).enumerate().filter(|(_, pixel)| is_near(pixel));
        let mut found: Vec<_> = found.map(|(at, _)| (at % self.width, at / self.width)).collect();
        found.sort_unstable();
        found
    }
}
