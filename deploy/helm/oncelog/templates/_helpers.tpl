{{- define "oncelog.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "oncelog.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "oncelog.labels" -}}
{{ include "oncelog.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Address of the pod with this name or variable, for clients and other nodes. */}}
{{- define "oncelog.address" -}}
{{- $root := index . 0 -}}
{{ index . 1 }}.{{ include "oncelog.fullname" $root }}-nodes.{{ $root.Release.Namespace }}.svc.{{ $root.Values.clusterDomain }}:7001
{{- end -}}

{{/* The nodes that the cluster begins with, as 1=host:port,2=host:port. */}}
{{- define "oncelog.founders" -}}
{{- $root := . -}}
{{- $nodes := list -}}
{{- range $i := untilStep 1 (int (add1 .Values.founders)) 1 -}}
{{- $pod := printf "%s-%d" (include "oncelog.fullname" $root) $i -}}
{{- $nodes = append $nodes (printf "%d=%s" $i (include "oncelog.address" (list $root $pod))) -}}
{{- end -}}
{{- join "," $nodes -}}
{{- end -}}

{{- define "oncelog.check" -}}
{{- if lt (int .Values.replicas) (int .Values.founders) -}}
{{- fail (printf "replicas: %v is below founders, %v: the cluster could never begin" .Values.replicas .Values.founders) -}}
{{- end -}}
{{- if and (eq (int .Values.founders) 1) (gt (int .Values.replicas) 1) -}}
{{- fail "founders: 1 makes a cluster that stays alone; set founders to 3 in a new release to have more nodes" -}}
{{- end -}}
{{- end -}}

{{/* A number of a values file is a float, which is written as 6.7108864e+07 otherwise. */}}
{{- define "oncelog.text" -}}
{{- if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end -}}
