// Preact with htm: templates without a build step.
import { h, Fragment, render } from "preact";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { computed, effect, signal } from "@preact/signals";
import htm from "htm";

export const html = htm.bind(h);
export {
  Fragment, computed, effect, h, render, signal,
  useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState,
};
