{{- define "disaggpair.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "disaggpair.fullname" -}}
{{- $name := include "disaggpair.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that select pods; they never change after installation. */}}
{{- define "disaggpair.selectorLabels" -}}
app.kubernetes.io/name: {{ include "disaggpair.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "disaggpair.labels" -}}
{{ include "disaggpair.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "disaggpair.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{- define "disaggpair.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "disaggpair.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* What the operator does inside the namespaces it serves. */}}
{{- define "disaggpair.rules" -}}
- apiGroups: [disaggpair.dev]
  resources: [disaggpairs]
  verbs: [get, list, watch]
- apiGroups: [disaggpair.dev]
  resources: [disaggpairs/status]
  verbs: [patch]
# Owner references with blockOwnerDeletion need this where the API server enforces it.
- apiGroups: [disaggpair.dev]
  resources: [disaggpairs/finalizers]
  verbs: [update]
# The right on pods is also what the operator grants to each pair's router.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [configmaps, serviceaccounts, services]
  verbs: [create, delete, get, list, patch, watch]
# By name alone: each pair's own Secret. To list or watch would be a right on all Secrets' values.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create, get, patch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [rolebindings, roles]
  verbs: [create, delete, get, list, patch, watch]
{{- end -}}

{{- define "disaggpair.nodeRules" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [list]
{{- end -}}

{{- define "disaggpair.subjects" -}}
- kind: ServiceAccount
  name: {{ include "disaggpair.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
