// Data that a page shows: what was there stays while it is read anew, and loading is never "none".
import { useCallback, useEffect, useRef, useState } from "./html.js";
import { useLive } from "./live.js";

/**
 * Loads with `load` whenever one of `keys` changes; `refresh(event)` says on which live events to
 * load again. Loads never overlap: what is asked for meanwhile is done once more afterwards.
 */
export function useResource(load, keys, refresh = () => false) {
  const [state, setState] = useState({ data: undefined, error: undefined });
  const turn = useRef({ busy: false, again: false });

  const run = useCallback(async () => {
    const now = turn.current;
    if (now.busy) {
      now.again = true;
      return;
    }
    now.busy = true;
    try {
      const data = await load();
      if (now === turn.current) setState({ data, error: undefined });
    } catch (error) {
      if (now === turn.current) setState((old) => ({ ...old, error }));
    }
    now.busy = false;
    if (now.again && now === turn.current) {
      now.again = false;
      run();
    }
  }, keys);

  useEffect(() => {
    // A load that still runs for the keys before is of another turn and changes nothing.
    turn.current = { busy: false, again: false };
    setState({ data: undefined, error: undefined });
    run();
    return () => {
      turn.current = { busy: false, again: false };
    };
  }, keys);

  useLive((event) => refresh(event) && run());
  const change = useCallback(
    (edit) => setState((old) => (old.data === undefined ? old : { ...old, data: edit(old.data) })),
    [],
  );
  return { ...state, loading: state.data === undefined && !state.error, reload: run, change };
}

export const onTick = (event) => event.kind !== "order";
