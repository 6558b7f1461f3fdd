"""Does attention become convolution, and does hierarchical attention beat it?   Varma and Prabhu 2021

    saccade run attention_as_convolution --scale smoke     under a minute; only exact claims are judged
    saccade run attention_as_convolution --scale small     five seeds, 64 tokens: at most 15 minutes on two cores
    saccade run attention_as_convolution --scale large     wider, deeper, 40 000 presentations a run: hours
    saccade run attention_as_convolution --scale paper     the report's sizes and its Table 4
    saccade run attention_as_convolution --set sweep=table3     only the runs behind one part; others re-use them

SA: layers of their own. HA: one block for all passes, with the keys of the first. Tokens are patches; heads average
the tokens themselves, and one linear map follows. Numbers stand where the report looks at maps.
"""

from saccade.studies.attention_as_convolution.claims import STUDY

__all__ = ["STUDY"]
