//! Shrinks pictures of the page to a PNG of at most 256 colours. Views have fewer colours, apart from the edges of letters
//! and lines.

use std::{
    collections::HashMap,
    io::{Read, Write},
};

use flate2::{Compression, Crc, read::ZlibDecoder, write::ZlibEncoder};

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Bytes of a chunk without its data: length, name and checksum.
const CHUNK_FRAME: usize = 12;

/// Colours of a palette.
const PALETTE: usize = 256;

type Colour = [u8; 3];

/// Encodes a PNG of 8 bits a channel with a palette. Further colours become the nearest colour of the palette.
pub(crate) fn with_palette(png: &[u8]) -> Vec<u8> {
    let (width, pixels) = decode(png);
    let mut counts: HashMap<Colour, usize> = HashMap::new();
    for pixel in &pixels {
        *counts.entry(*pixel).or_default() += 1;
    }
    let palette = palette_of(counts);
    let mut places: HashMap<Colour, u8> = HashMap::new();
    let mut rows = Vec::with_capacity(pixels.len() + pixels.len() / width);
    for row in pixels.chunks(width) {
        rows.push(0);
        rows.extend(
            row.iter()
                .map(|pixel| *places.entry(*pixel).or_insert_with(|| nearest(&palette, *pixel))),
        );
    }
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&rows).expect("compress");
    let rows = encoder.finish().expect("compress");
    let mut head = Vec::new();
    head.extend((width as u32).to_be_bytes());
    head.extend(((pixels.len() / width) as u32).to_be_bytes());
    // Eight bits, a palette, and the only methods there are.
    head.extend([8, 3, 0, 0, 0]);
    let mut made = SIGNATURE.to_vec();
    for (name, data) in
        [(b"IHDR", &head), (b"PLTE", &palette.concat()), (b"IDAT", &rows), (b"IEND", &Vec::new())]
    {
        let mut crc = Crc::new();
        crc.update(name);
        crc.update(data);
        made.extend((data.len() as u32).to_be_bytes());
        made.extend(name);
        made.extend(data.as_slice());
        made.extend(crc.sum().to_be_bytes());
    }
    made
}

/// The most frequent colours, then colours most different from all earlier ones, since the line of a series has few pixels.
fn palette_of(counts: HashMap<Colour, usize>) -> Vec<Colour> {
    let mut used: Vec<(Colour, usize)> = counts.into_iter().collect();
    used.sort_by_key(|(colour, count)| (usize::MAX - count, *colour));
    let used: Vec<Colour> = used.into_iter().map(|(colour, _)| colour).collect();
    let (most, others) = used.split_at(used.len().min(PALETTE / 2));
    let mut palette = most.to_vec();
    let to_palette = |colour: &Colour| most.iter().map(|one| distance(*one, *colour)).min();
    let mut distances: Vec<u32> = others.iter().map(|one| to_palette(one).unwrap_or(0)).collect();
    for _ in 0..others.len().min(PALETTE - most.len()) {
        let far = (0..others.len()).max_by_key(|at| distances[*at]).unwrap_or(0);
        palette.push(others[far]);
        for (left, one) in distances.iter_mut().zip(others) {
            *left = distance(*one, others[far]).min(*left);
        }
    }
    palette
}

fn distance(a: Colour, b: Colour) -> u32 {
    a.iter().zip(b).map(|(a, b)| u32::from(a.abs_diff(b)).pow(2)).sum()
}

fn nearest(palette: &[Colour], pixel: Colour) -> u8 {
    let found = (0..palette.len()).min_by_key(|at| distance(palette[*at], pixel)).unwrap_or(0);
    u8::try_from(found).expect("at most 256 colours")
}

/// The width of a picture and its pixels, row by row.
fn decode(png: &[u8]) -> (usize, Vec<Colour>) {
    let mut rest = png.strip_prefix(SIGNATURE).expect("a PNG");
    let (mut head, mut data) = (Vec::new(), Vec::new());
    while rest.len() >= CHUNK_FRAME {
        let length = u32::from_be_bytes(rest[..4].try_into().expect("four bytes")) as usize;
        let content = &rest[8..8 + length];
        match &rest[4..8] {
            b"IHDR" => head.extend_from_slice(content),
            b"IDAT" => data.extend_from_slice(content),
            _ => {}
        }
        rest = &rest[CHUNK_FRAME + length..];
    }
    let width = u32::from_be_bytes(head[..4].try_into().expect("four bytes")) as usize;
    assert_eq!(head[8], 8, "bits a channel");
    let channels = match head[9] {
        2 => 3,
        6 => 4,
        other => panic!("colour type {other}"),
    };
    let mut filtered = Vec::new();
    ZlibDecoder::new(data.as_slice()).read_to_end(&mut filtered).expect("decompress");
    let stride = width * channels;
    let mut above = vec![0_u8; stride];
    let mut pixels = Vec::new();
    for line in filtered.chunks(stride + 1) {
        let mut row = line[1..].to_vec();
        for at in 0..row.len() {
            let left = if at < channels { 0 } else { row[at - channels] };
            let corner = if at < channels { 0 } else { above[at - channels] };
            let add = match line[0] {
                0 => 0,
                1 => left,
                2 => above[at],
                3 => u8::midpoint(left, above[at]),
                4 => paeth(left, above[at], corner),
                other => panic!("filter {other}"),
            };
            row[at] = row[at].wrapping_add(add);
        }
        pixels.extend(row.chunks(channels).map(|pixel| [pixel[0], pixel[1], pixel[2]]));
        above = row;
    }
    (width, pixels)
}

/// The one of three neighbours that is nearest to the plane through them (PNG, 9.4).
fn paeth(left: u8, above: u8, corner: u8) -> u8 {
    let plane = i16::from(left) + i16::from(above) - i16::from(corner);
    let distance = |byte: u8| (plane - i16::from(byte)).abs();
    if distance(left) <= distance(above) && distance(left) <= distance(corner) {
        left
    } else if distance(above) <= distance(corner) {
        above
    } else {
        corner
    }
}
