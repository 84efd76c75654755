// Lists that are read page by page.

/** Items that are asked for at a time where all are read. */
export const PAGE = 1000;

/**
 * The items of all pages.
 * @template T
 * @param {(cursor: string | undefined) => Promise<{ items: T[], next_cursor?: string | null }>} pageAt
 * @param {string | undefined} cursor
 * @returns {AsyncGenerator<T, void, undefined>}
 */
export async function* each(pageAt, cursor) {
  for (let next = cursor; ; ) {
    const page = await pageAt(next);
    yield* page.items;
    next = page.next_cursor ?? undefined;
    if (next === undefined) return;
  }
}
