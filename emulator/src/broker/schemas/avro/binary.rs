//! Compares a message in Avro's binary encoding with a schema.

use super::{AvroSchema, AvroType, Budget, TypeId, within};

impl AvroSchema {
    /// Says why a binary message does not fit, if so.
    pub(in crate::broker::schemas) fn check_binary(&self, data: &[u8]) -> Result<(), String> {
        let mut walk = BinaryWalk { schema: self, data, budget: Budget::of(data.len()) };
        walk.value(self.root, 0)?;
        // The service's words.
        if walk.data.is_empty() { Ok(()) } else { Err("Too much data to parse for schema".to_owned()) }
    }
}

struct BinaryWalk<'a> {
    schema: &'a AvroSchema,
    /// What is left of the message.
    data: &'a [u8],
    budget: Budget,
}

impl<'a> BinaryWalk<'a> {
    fn value(&mut self, of: TypeId, depth: usize) -> Result<(), String> {
        self.budget.spend(depth)?;
        let schema = self.schema;
        match &schema.types[of] {
            AvroType::Null => Ok(()),
            AvroType::Boolean => match self.take(1)? {
                [0 | 1] => Ok(()),
                other => Err(format!("a boolean is {other:?}")),
            },
            AvroType::Int => {
                let number = self.long()?;
                i32::try_from(number)
                    .map(|_| ())
                    .map_err(|_| format!("{number} is out of the range of an int"))
            }
            AvroType::Long => self.long().map(|_| ()),
            AvroType::Float => self.take(4).map(|_| ()),
            AvroType::Double => self.take(8).map(|_| ()),
            AvroType::Bytes => self.sized().map(|_| ()),
            AvroType::String => self.string(),
            AvroType::Fixed(fixed) => self.take(fixed.size).map(|_| ()),
            AvroType::Enum(enumeration) => {
                let number = self.long()?;
                let known = usize::try_from(number).is_ok_and(|number| number < enumeration.symbols.len());
                if known { Ok(()) } else { Err(format!("{} has no symbol {number}", enumeration.name.full)) }
            }
            AvroType::Array(items) => self.blocks(*items, false, depth),
            AvroType::Map(values) => self.blocks(*values, true, depth),
            AvroType::Record(record) => record.fields.iter().try_for_each(|field| {
                self.value(field.of, depth + 1).map_err(|why| within(&field.name, &why))
            }),
            AvroType::Union(branches) => {
                let number = self.long()?;
                let branch = usize::try_from(number).ok().and_then(|number| branches.ids.get(number));
                let branch = branch.ok_or_else(|| format!("the union has no type {number}"))?;
                self.value(*branch, depth + 1)
            }
        }
    }

    /// The blocks of an array or a map, after each of which another follows until one is empty. One
    /// with a negative count also states how many bytes it has.
    fn blocks(&mut self, of: TypeId, has_keys: bool, depth: usize) -> Result<(), String> {
        loop {
            let count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                self.long()?;
            }
            for _ in 0..count.unsigned_abs() {
                if has_keys {
                    self.string()?;
                }
                self.value(of, depth + 1)?;
            }
        }
    }

    fn string(&mut self) -> Result<(), String> {
        std::str::from_utf8(self.sized()?).map(|_| ()).map_err(|_| "a string is not UTF-8".to_owned())
    }

    /// As many bytes as the number before them says.
    fn sized(&mut self) -> Result<&'a [u8], String> {
        let size = self.long()?;
        self.take(usize::try_from(size).map_err(|_| format!("{size} is not a size"))?)
    }

    fn take(&mut self, size: usize) -> Result<&'a [u8], String> {
        let (taken, left) = self.data.split_at_checked(size).ok_or("Not enough data to parse for schema")?;
        self.data = left;
        Ok(taken)
    }

    /// A number in zigzag encoding, seven bits a byte.
    fn long(&mut self) -> Result<i64, String> {
        let mut bits = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?.first().copied().unwrap_or_default();
            bits |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((bits >> 1).cast_signed() ^ -((bits & 1).cast_signed()));
            }
        }
        Err("a number has more than ten bytes".to_owned())
    }
}
